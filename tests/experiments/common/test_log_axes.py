"""Logarithmic axes: coordinates worked out by hand; the drawing area is 300 by 170."""

import math

import pytest

from experiments.common.log_axes import log_chart
from tfr_moe.report import Line


def drawn(axes, line, **options):
    return log_chart(axes, [line], "finding", "x", "y", **options)


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ((1, 100), ["1", "2", "5", "10", "20", "50", "100"]),
        ((0.5, 30_000), ["1", "10", "100", "1000", "10000"]),
        ((3, 4), ["3", "4"]),
        ((3, 3), ["3"]),
    ],
)
def test_ticks_of_a_logarithmic_axis(values, texts):
    actual = drawn("x", Line("", values, [0, 1]))
    assert [text for _, text in actual.x_ticks] == texts


def test_powers_of_ten_are_as_far_apart_as_each_other():
    actual = drawn("y", Line("", [0, 1, 2], [1, 10, 100]))
    assert actual.series[0].path == "M52.0 178.0L202.0 93.0L352.0 8.0"


def test_what_cannot_be_drawn_is_left_out():
    line = Line("", [1, 2, 3, 4], [1.0, math.nan, 0.0, 10.0])
    assert drawn("y", line).series[0].path == "M52.0 178.0L352.0 8.0"


def test_intervals_down_to_zero_end_at_the_axis():
    line = Line("", [1, 10], [10.0, 10.0], [0.0, 1.0], [100.0, 10.0])
    bars = "M52.0 178.0V8.0M352.0 178.0V93.0"
    assert drawn("xy", line).series[0].path == "M52.0 93.0L352.0 93.0" + bars


def test_an_axis_contains_other_values_too():
    actual = drawn("y", Line("", [0, 1], [1, 10]), values=(0.1, 100.0))
    assert [text for _, text in actual.y_ticks] == ["0.1", "1", "10", "100"]
    assert actual.series[0].path == "M52.0 121.3L352.0 64.7"
