import itertools

import pytest

from tfr_moe.beam.transforms.tables import clean_name, merge_rows, path_of


@pytest.mark.parametrize(
    "name, expected",
    [
        ("Toys &amp; Games", "Toys & Games"),
        ("Toys &amp;amp; Games", "Toys & Games"),
        ("  Toys   & Games ", "Toys & Games"),
        ("</span></span></span>", ""),
        ("Men's &lt;b&gt;Shoes", "Men's Shoes"),
        ("a < b", "a < b"),
    ],
)
def test_names_are_clean_name(name, expected):
    assert clean_name(name) == expected
    assert clean_name(expected) == expected


def test_a_path_is_a_list_or_a_text_with_separators():
    assert path_of(["A &amp; B", " ", "C"], "/") == ["A & B", "C"]
    assert path_of("A / B/C ", "/") == ["A", "B", "C"]
    assert path_of(None, "/") == path_of({"a": 1}, "/") == path_of(7, "/") == []


def test_rows_of_a_key_are_merged_in_the_order_of_the_files():
    rows = [((0, 5, 0), ("x", None)), ((0, 2, 0), (None, "early")), ((1, 1, 0), ("y", "late"))]
    for order in itertools.permutations(rows):
        assert merge_rows(order) == (("x", "early"), 3, True)


def test_a_value_that_is_missing_does_not_contradict():
    rows = [((0, 1, 0), (None,)), ((0, 2, 0), ("x",)), ((0, 3, 0), ("x",))]
    for order in itertools.permutations(rows):
        assert merge_rows(order) == (("x",), 3, False)
