"""Failures don't print whole pages, long files run first, and tests restore global state."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tests.conftest import (
    ROOT,
    TOGETHER,
    global_state,
    pytest_assertrepr_compare,
    pytest_collection_modifyitems,
    pytest_xdist_make_scheduler,
)
from tfr_moe._compat import tf

PAGE = "<p>" * 100_000 + '<th aria-sort="none">' + "</p>" * 100_000


def test_a_missing_part_of_a_long_text_is_named_without_the_text():
    [line] = pytest_assertrepr_compare("in", "0.1234", PAGE)
    assert line == "'0.1234' in a text of 700,021 characters: found nowhere"


def test_an_unwanted_part_of_a_long_text_is_shown_by_its_position():
    [line] = pytest_assertrepr_compare("not in", "aria-sort", PAGE)
    assert "found 1 times, first at 300,004 in 'p><p><p>" in line
    assert len(line) < 300


def test_other_comparisons_are_left_to_pytest():
    assert pytest_assertrepr_compare("in", "a", "short") is None
    assert pytest_assertrepr_compare("==", "a", PAGE) is None
    assert pytest_assertrepr_compare("in", 3, [1, 2]) is None


def test_files_run_whole_and_long_ones_first():
    def item(file, name, slow=False):
        marker = "slow" if slow else None
        return SimpleNamespace(
            path=ROOT / "tests" / file, name=name, get_closest_marker=lambda name: name == marker
        )

    items = [
        item("utils/test_a.py", "a1"),
        item("losses/test_b.py", "b1"),
        item("losses/test_b.py", "b2"),
        item("tuning/test_c.py", "c1"),
        item("data/test_d.py", "d2"),
        item("data/test_d.py", "d1", slow=True),
        item("report/test_e.py", "e1"),
    ]
    pytest_collection_modifyitems(items)
    assert [each.name for each in items] == ["e1", "d2", "d1", "c1", "b1", "b2", "a1"]


def test_files_of_a_folder_that_shares_much_run_in_one_process():
    pytest.importorskip("xdist")
    options = SimpleNamespace(getvalue={"dist": "loadfile", "tx": ["popen"]}.get)
    scope = pytest_xdist_make_scheduler(options, None)._split_scope
    assert scope("tests/serving/export/test_a.py::test") == scope("tests/serving/test_b.py::test")
    assert scope("tests/serving_more/test_a.py::test[a::b]") == "tests/serving_more/test_a.py"
    assert scope("tests/serving/test_a.py::test") != scope("tests/report/test_a.py::test")
    assert all((ROOT / folder).is_dir() for folder in TOGETHER)
    lists, half = "tests/conformance/test_lists.py::test", "tests/conformance/test_half.py::test"
    cases = [f"{letter}Scorer" for letter in "abcdefgh"]
    assert all(scope(f"{lists}[{case}]") == scope(f"{half}[{case}-float16]") for case in cases)
    assert len({scope(f"{lists}[{case}]") for case in cases}) == 2
    other = SimpleNamespace(getvalue={"dist": "load"}.get)
    assert pytest_xdist_make_scheduler(other, None) is None


@pytest.mark.parametrize("name", ["print options", "dtype policy", "working directory"])
def test_a_change_of_global_state_is_seen(name, monkeypatch, tmp_path):
    tf.keras.backend.floatx()  # loads Keras
    before = global_state()
    if name == "working directory":
        monkeypatch.chdir(tmp_path)
        changed = global_state()
    elif name == "print options":
        with np.printoptions(precision=2):
            changed = global_state()
    else:
        tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
        changed = global_state()
        tf.keras.mixed_precision.set_global_policy("float32")
    assert [key for key in before if changed[key] != before[key]] == [name]
    monkeypatch.undo()
    assert global_state() == before
