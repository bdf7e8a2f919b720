"""A failure says what was looked for in a page, and doesn't print the page."""

from __future__ import annotations

from tests.conftest import pytest_assertrepr_compare

PAGE = "<p>" * 100_000 + '<th aria-sort="none">' + "</p>" * 100_000


def test_a_missing_part_of_a_long_text_is_named_without_the_text():
    [line] = pytest_assertrepr_compare("in", "0.1234", PAGE)
    assert line == "'0.1234' in a text of 700,021 characters: found nowhere"


def test_an_unwanted_part_of_a_long_text_is_shown_where_it_stands():
    [line] = pytest_assertrepr_compare("not in", "aria-sort", PAGE)
    assert "found 1 times, first at 300,004 in 'p><p><p>" in line
    assert len(line) < 300


def test_other_comparisons_are_left_to_pytest():
    assert pytest_assertrepr_compare("in", "a", "short") is None
    assert pytest_assertrepr_compare("==", "a", PAGE) is None
    assert pytest_assertrepr_compare("in", 3, [1, 2]) is None
