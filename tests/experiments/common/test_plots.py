"""Plots appear whole, and twice the same."""

import re

import pytest

from experiments.common.plots import COLOURS, drawn
from tfr_moe.report.html import TEMPLATES


def test_the_same_plot_is_the_same_file(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        with drawn(tmp_path / name, "line", panels=2) as panels:
            for axes in panels:
                axes.plot([1, 2], [1, 4])
    assert (tmp_path / "a/line.svg").read_bytes() == (tmp_path / "b/line.svg").read_bytes()
    assert (tmp_path / "a/line.png").read_bytes() == (tmp_path / "b/line.png").read_bytes()


def test_the_colours_are_those_of_the_pages():
    css = (TEMPLATES / "page.css").read_text(encoding="utf-8").partition("}")[0]
    assert re.findall(r"--series-\d: (#\w+)", css) == list(COLOURS[:5])


def test_a_plot_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), drawn(tmp_path, "line"):
        _ = 1 / 0
    assert list(tmp_path.iterdir()) == []
