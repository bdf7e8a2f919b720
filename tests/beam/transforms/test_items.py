import itertools

import pytest

from tfr_moe.beam.transforms.items import MergeItems, mended, path_of


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
def test_names_are_mended(name, expected):
    assert mended(name) == expected
    assert mended(expected) == expected


def test_a_path_is_a_list_or_a_text_with_separators():
    assert path_of(["A &amp; B", " ", "C"], "/") == ["A & B", "C"]
    assert path_of("A / B/C ", "/") == ["A", "B", "C"]
    assert path_of(None, "/") == path_of({"a": 1}, "/") == path_of(7, "/") == []


def test_rows_of_an_item_are_joined_by_place_whatever_their_order():
    rows = [((0, 5, 0), ("x", None)), ((0, 2, 0), (None, "early")), ((1, 1, 0), ("y", "late"))]
    combine = MergeItems(2)
    for order in itertools.permutations(rows):
        merged = combine.create_accumulator()
        for row in order:
            merged = combine.add_input(merged, row)
        values, count, conflict = combine.extract_output(merged)
        assert [value for _, value in values] == ["x", "early"]
        assert (count, conflict) == (3, True)


def test_a_value_that_is_missing_does_not_contradict():
    combine = MergeItems(1)
    merged = combine.add_input(combine.create_accumulator(), ((0, 1, 0), (None,)))
    merged = combine.add_input(merged, ((0, 2, 0), ("x",)))
    assert merged == ((((0, 2, 0), "x"),), 2, False)
    assert combine.add_input(merged, ((0, 3, 0), ("x",)))[1:] == (3, False)
