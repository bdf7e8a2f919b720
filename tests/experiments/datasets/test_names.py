import pytest

from experiments.datasets.interactions.names import clean_name, path_of


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
