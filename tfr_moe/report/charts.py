"""Coordinates of charts, lines, points and intervals over two axes, which templates draw as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

LEFT, RIGHT, TOP, BOTTOM = 52.0, 352.0, 8.0, 178.0
"""The drawing area; wider names on the vertical axis move its left side."""
_TICK = 28
"""Least distance of two numbers on an axis."""
WIDTH = 370
"""Of a chart, with room for half of the last label beyond its right side."""
COLOURS = 5
_SHAPES = (
    "m-2.2 0a2.2 2.2 0 1 0 4.4 0a2.2 2.2 0 1 0-4.4 0z",
    "m-2-2h4v4h-4z",
    "m0-2.7l2.6 4.6h-5.2z",
    "m0-2.9l2.9 2.9l-2.9 2.9l-2.9-2.9z",
)

Numbers = Sequence[float] | NDArray[np.floating[Any]]
Ticks = Sequence[tuple[float, str]]
Scale = Callable[[float], float]
Kind = Literal["line", "curve", "dashed", "points"]


class Line(NamedTuple):
    """What is drawn in one colour, in the units of the axes.

    Attributes:
        name: in the legend; "" for no entry.
        x: numbers, ascending if they are joined.
        low: lower ends of the intervals of y, or empty.
        kind: `line`, points joined by lines; `curve`, without marks, its intervals as a band;
            `dashed`, without marks; `points`, marks only.
        colour: number of the colour, from 0; by default the number of the line.
    """

    name: str
    x: Numbers
    y: Numbers
    low: Numbers = ()
    high: Numbers = ()
    kind: Kind = "line"
    colour: int | None = None


class Series(NamedTuple):
    """A line as it is drawn: the style sheet's class numbers, the legend's mark, and paths.

    `path` joins the points and has the bars of intervals, `area` is their band, `marks` are the
    points.
    """

    name: str
    colour: int
    dash: int
    path: str
    area: str
    marks: str
    sample: str


class Chart(NamedTuple):
    """A chart in coordinates of its element.

    The `finding` is what is to be seen, for who cannot see it; ticks are coordinates with their
    text, and `rule` is the path of a dotted line, or "".
    """

    finding: str
    x_title: str
    y_title: str
    x_ticks: Ticks
    y_ticks: Ticks
    left: float
    series: Sequence[Series]
    rule: str
    title: str


def _axis(
    values: Sequence[float],
    start: float,
    end: float,
    ticks: Ticks,
    unit: str = "",
    integer: bool = False,
) -> tuple[Scale, Ticks]:
    """The function from numbers to coordinates between `start` and `end`, and the ticks.

    Infinite numbers are at the ends. Without `ticks` they are at multiples of 1, 2 or 5 times 10^n.
    """
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite), max(finite)
    if low == high:
        low, high = low - 0.5, high + 0.5
    ticks = ticks or _round_numbers(low, high, integer, abs(end - start))

    def scale(value: float) -> float:
        if math.isinf(value):
            return end if value > 0 else start
        return round(start + (value - low) * (end - start) / (high - low), 1)

    return scale, [(scale(value), text + unit) for value, text in ticks]


def _round_numbers(low: float, high: float, integer: bool, length: float) -> Ticks:
    size = 10.0 ** math.floor(math.log10((high - low) / 5))
    most = min(max(length // _TICK, 2), 6)
    step = next(size * f for f in (1, 2, 5, 10, 20, 50) if (high - low) / (size * f) <= most + 1e-9)
    step = max(step, 1.0) if integer else step
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    numbers = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return [(n * step, f"{n * step:.{decimals}f}") for n in numbers]


def chart(
    lines: Sequence[Line],
    finding: str,
    x_title: str,
    y_title: str,
    *,
    title: str = "",
    x_unit: str = "",
    y_unit: str = "",
    x_ticks: Ticks = (),
    y_ticks: Ticks = (),
    include: tuple[Sequence[float], Sequence[float]] = ((), ()),
    rule: Sequence[tuple[float, float]] = (),
    integer: bool = False,
) -> Chart:
    """Computes a chart.

    Args:
        lines: what is drawn; points that are not finite are left out.
        finding: what is to be seen, for who cannot see it.
        x_unit: after each number of the horizontal axis.
        y_unit: after each number of the vertical axis.
        x_ticks: numbers and their texts on the horizontal axis, instead of round numbers.
        y_ticks: the same of the vertical axis.
        include: numbers that the axes contain beside those of the lines.
        rule: points of a dotted line; infinite numbers are ends of an axis.
        integer: whether ticks of the horizontal axis are whole numbers.

    Example:
        >>> drawn = chart([Line("dnn", [1, 2], [0.5, 0.7])], "it rises", "epoch", "NDCG")
        >>> [text for _, text in drawn.y_ticks]
        ['0.50', '0.55', '0.60', '0.65', '0.70']
        >>> drawn.series[0].path
        'M52.0 178.0L352.0 8.0'
    """
    left = max(LEFT, 24 + 5.5 * max((len(text) for _, text in y_ticks), default=0))
    across, up = ([*values] for values in include)
    for line in lines:
        across.extend(line.x)
        up += [*line.y, *line.low, *line.high]
    x, x_ticks = _axis(across, left, RIGHT, x_ticks, x_unit, integer)
    y, y_ticks = _axis(up, BOTTOM, TOP, y_ticks, y_unit)
    series = [_series(line, n, x, y) for n, line in enumerate(lines)]
    ends = _joined([(x(at), y(value)) for at, value in rule])
    return Chart(finding, x_title, y_title, x_ticks, y_ticks, left, series, ends, title)


def _series(line: Line, number: int, x: Scale, y: Scale) -> Series:
    number = number if line.colour is None else line.colour
    drawn = enumerate(zip(line.x, line.y, strict=True))
    finite = [n for n, point in drawn if all(map(math.isfinite, point))]
    points = [(x(line.x[n]), y(line.y[n])) for n in finite]
    area = bars = ""
    if len(line.low):
        low, high = ([(x(line.x[n]), y(ends[n])) for n in finite] for ends in (line.low, line.high))
        if line.kind == "curve":
            area = _joined(low + high[::-1]) + "z"
        else:
            bars = "".join(
                f"M{at} {bottom}V{top}" for (at, bottom), (_, top) in zip(low, high, strict=True)
            )
    shape = _SHAPES[number // COLOURS % len(_SHAPES)]
    if line.kind == "points":
        shape = _SHAPES[number % len(_SHAPES)]
    marked = line.kind in ("line", "points")
    return Series(
        line.name,
        number % COLOURS + 1,
        1 if line.kind == "dashed" else number // COLOURS % 3,
        ("" if line.kind == "points" else _joined(points)) + bars,
        area,
        "".join(f"M{a} {b}{shape}" for a, b in points) if marked else "",
        f"M12 4{shape}" if marked else "",
    )


def _joined(points: Sequence[tuple[float, float]]) -> str:
    return "".join(f"{'L' if n else 'M'}{a} {b}" for n, (a, b) in enumerate(points))
