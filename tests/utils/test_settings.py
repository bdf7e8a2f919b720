"""YAML of plain values and `key=value` texts."""

from __future__ import annotations

from tfr_moe.utils.settings import load_yaml, parse_pair, parse_pairs, split_pair


def test_aliases_are_read():
    assert load_yaml("a: &x [1, 2]\nb: *x") == {"a": [1, 2], "b": [1, 2]}


def test_pairs_are_split_at_the_first_sign_and_the_last_value_wins():
    assert split_pair("where=a=b") == ("where", "a=b")
    assert parse_pair("expert_hidden_dims=[64, 32]") == ("expert_hidden_dims", [64, 32])
    assert parse_pairs(["top_k=2", "model=mmoe", "top_k=3"]) == {"top_k": 3, "model": "mmoe"}
