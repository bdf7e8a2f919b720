"""Errors of files as one line."""

from __future__ import annotations

import pytest

from tfr_moe.errors import UserError
from tfr_moe.utils.failures import file_failure, reading


def test_an_error_of_a_file_names_it():
    error = FileNotFoundError(2, "No such file or directory", "data/a.csv")
    assert file_failure(error) == "data/a.csv: No such file or directory"
    assert file_failure(KeyError("val_loss")) is None


def test_any_error_over_a_broken_file_names_it():
    with (
        pytest.raises(UserError, match=r"^run m: model\.txt cannot be read \(no tree\)$"),
        reading("run m: model.txt"),
    ):
        raise IndexError("no tree")
