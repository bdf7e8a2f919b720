"""YAML of plain values and `key=value` texts."""

from __future__ import annotations

import pytest

from tfr_moe.errors import UserError
from tfr_moe.utils.settings import load_yaml, parse_pair, parse_pairs, read_mapping, split_pair


def test_aliases_are_read():
    assert load_yaml("a: &x [1, 2]\nb: *x") == {"a": [1, 2], "b": [1, 2]}


def test_a_file_holds_a_mapping_or_nothing(tmp_path):
    path = tmp_path / "limits.yaml"
    for text, data in (("psi: 1", {"psi": 1}), ("", {}), ("# nothing", {})):
        path.write_text(text)
        assert read_mapping(path, "limits") == data
    for text in ("[]", "0", "- 1"):
        path.write_text(text)
        with pytest.raises(UserError, match=r"^limits .*yaml: must be a mapping of keys to values"):
            read_mapping(path, "limits")


def test_pairs_are_split_at_the_first_sign_and_the_last_value_wins():
    assert split_pair("where=a=b") == ("where", "a=b")
    assert parse_pair("expert_hidden_dims=[64, 32]") == ("expert_hidden_dims", [64, 32])
    assert parse_pairs(["top_k=2", "model=mmoe", "top_k=3"]) == {"top_k": 3, "model": "mmoe"}
