"""Charts: coordinates, ticks and marks worked out by hand; the drawing area is 300 by 170."""

import math
from xml.etree import ElementTree

import numpy as np
import pytest

from tfr_moe.errors import UserError
from tfr_moe.report import Cell, HeatMap, Line, chart, write_figure
from tfr_moe.report.charts import BOTTOM, LEFT, RIGHT, TOP


def drawn(*lines, **options):
    return chart(lines, "finding", "x", "y", **options)


def test_the_ends_of_the_data_are_the_corners_of_the_drawing_area():
    actual = drawn(Line("dnn", [0, 2, 4], [10.0, 30.0, 20.0]))
    middle = (LEFT + RIGHT) / 2, TOP
    assert actual.series[0].path == (
        f"M{LEFT} {BOTTOM}L{middle[0]} {middle[1]}L{RIGHT} {(TOP + BOTTOM) / 2}"
    )
    assert actual.x_ticks == [(52.0, "0"), (127.0, "1"), (202.0, "2"), (277.0, "3"), (352.0, "4")]
    assert [text for _, text in actual.y_ticks] == ["10", "15", "20", "25", "30"]


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ((0.0101, 0.0102), ["0.01010", "0.01012", "0.01014", "0.01016", "0.01018", "0.01020"]),
        ((0, 1300), ["0", "500", "1000"]),
        ((3, 3), ["2.6", "2.8", "3.0", "3.2", "3.4"]),
        ((-1, 1), ["-1.0", "-0.5", "0.0", "0.5", "1.0"]),
    ],
)
def test_ticks_are_round_and_differ(values, texts):
    assert [text for _, text in drawn(Line("", [1, 2], values)).y_ticks] == texts


def test_what_cannot_be_drawn_is_left_out():
    line = Line("", [1, 2, 3, 4], [1.0, math.nan, -math.inf, 10.0])
    assert drawn(line).series[0].path == "M52.0 178.0L352.0 8.0"


def test_intervals_are_bars_of_points_and_bands_of_curves():
    x, y = np.array([0.0, 1.0]), np.array([5.0, 5.0])
    bars = drawn(Line("", x, y, [0, 5], [10, 5])).series[0]
    assert bars.path == "M52.0 93.0L352.0 93.0M52.0 178.0V8.0M352.0 93.0V93.0"
    band = drawn(Line("", x, y, [0, 5], [10, 5], "curve")).series[0]
    assert band.area == "M52.0 178.0L352.0 93.0L352.0 93.0L52.0 8.0z"
    assert band.marks == bars.area == "" and bars.marks.count("z") == 2


def test_series_differ_in_colour_or_form():
    lines = [Line(f"{n}", [0, 1], [n, n]) for n in range(12)]
    actual = drawn(*lines).series
    assert len({(s.colour, s.dash, s.sample) for s in actual}) == 12
    points = drawn(*(Line("", [n], [n], kind="points") for n in range(12))).series
    assert len({(s.colour, s.sample) for s in points}) == 12
    assert {s.path for s in points} == {""}


def test_names_on_an_axis_take_the_place_of_numbers():
    names = ["a", "b", "a rather long name of a model"]
    rows = list(enumerate(names))
    actual = drawn(Line("", [0.2, 0.8], [0, 2]), y_ticks=rows, include=((), (-0.5, 2.5)))
    assert [text for _, text in actual.y_ticks] == names
    assert [y for y, _ in actual.y_ticks] == pytest.approx(
        [BOTTOM - 170 / 6, BOTTOM - 85, TOP + 170 / 6], abs=0.05
    )
    assert actual.left > LEFT


def test_a_rule_ends_at_the_axes():
    actual = drawn(Line("", [0, 1], [0, 1]), rule=[(-math.inf, 0.5), (math.inf, 0.5)])
    assert actual.rule == "M52.0 93.0L352.0 93.0"


def test_panels_stand_side_by_side(tmp_path):
    panels = [drawn(Line(name, [1, 2], [3, 4]), title=f"panel {name}") for name in "abc"]
    for name in ("one", "two"):
        write_figure(panels, tmp_path / f"{name}.svg")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    root = ElementTree.parse(tmp_path / "one.svg").getroot()
    assert root.get("viewBox") == "0 0 1110 252"
    texts = [element.text for element in root.iter() if element.text]
    assert {"panel a", "panel b", "panel c", "a", "b", "c"} <= set(texts)
    groups = [element.get("transform") for element in root if element.get("transform")]
    assert groups == ["translate(0 18)", "translate(370 18)", "translate(740 18)"]


def test_a_heat_map_is_written_alone(tmp_path):
    write_figure(HeatMap("weights", [("a", "")], ["b"], [[Cell("0.5")]], "c"), tmp_path / "h.svg")
    root = ElementTree.parse(tmp_path / "h.svg").getroot()
    assert [e.text for e in root.iter() if e.tag.endswith("}text")] == [
        "weights",
        "c",
        "a",
        "b",
        "0.5",
    ]


def test_a_folder_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(UserError, match="cannot be written"):
        write_figure([drawn(Line("", [1], [1]))], tmp_path / "none" / "a.svg")


def test_numbers_below_beside_long_names_do_not_touch():
    names = ["LambdaMART, tuned, without categories", "dnn"]
    bars = [Line("", (-0.125, 0.137), (row, row)) for row in range(2)]
    drawn = chart(bars, "level", "points", "", y_ticks=list(enumerate(names)))
    assert [text for _, text in drawn.x_ticks] == ["-0.1", "0.0", "0.1"]
    short = chart(bars, "level", "points", "", y_ticks=[(0, "star"), (1, "dnn")])
    assert [text for _, text in short.x_ticks] == ["-0.10", "-0.05", "0.00", "0.05", "0.10"]
