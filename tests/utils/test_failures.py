"""Errors of files as one line."""

from __future__ import annotations

import pytest

from tfr_moe.errors import UserError
from tfr_moe.utils.failures import file_errors, file_failure, reading, reason_of


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


def test_nodes_and_operations_of_tensorflow_are_left_out():
    assert reason_of(ValueError("{{node Read}} no such\n  file [Op:ReadFile]")) == "no such file"


def test_what_was_being_written_is_named():
    with (
        pytest.raises(UserError, match=r"^run shop/moe: No space left on device$"),
        file_errors("run shop/moe"),
    ):
        raise OSError(28, "No space left on device")
