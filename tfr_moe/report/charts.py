"""Coordinates of charts, lines, points and intervals over two axes, which templates draw as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
Scale = Literal["linear", "log"]
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
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[tuple[float, str]]
    left: float
    series: Sequence[Series]
    rule: str
    title: str


class _Axis:
    """Maps numbers to coordinates between `start` and `end`, with ticks at 1, 2 or 5 times 10^n."""

    def __init__(
        self,
        values: Sequence[float],
        start: float,
        end: float,
        unit: str = "",
        integer: bool = False,
        scale: Scale = "linear",
        names: Sequence[str] = (),
    ):
        self._log = scale == "log"
        finite = [v for v in values if math.isfinite(v) and (v > 0 or not self._log)]
        low, high = (-0.5, len(names) - 0.5) if names else (min(finite), max(finite))
        if self._log:
            low, high = math.log10(low), math.log10(high)
        if low == high:
            low, high = low - 0.5, high + 0.5
        self._start, self._end = start, end
        self._low, self._scale = low, (end - start) / (high - low)
        found = [(float(i), name) for i, name in enumerate(names)]
        if self._log:
            found = _log_ticks(low, high)
        self.ticks = [
            (self(value), text + unit)
            for value, text in found
            or _linear_ticks(self._value(low), self._value(high), integer, abs(end - start))
        ]

    def _value(self, at: float) -> float:
        return 10.0**at if self._log else at

    def __call__(self, value: float) -> float:
        """The coordinate of a value; infinite ones are at the ends."""
        if math.isinf(value):
            return self._end if value > 0 else self._start
        at = math.log10(value) if self._log else value
        return round(self._start + (at - self._low) * self._scale, 1)


def _linear_ticks(low: float, high: float, integer: bool, length: float) -> list[tuple[float, str]]:
    size = 10.0 ** math.floor(math.log10((high - low) / 5))
    most = min(max(length // _TICK, 2), 6)
    step = next(size * f for f in (1, 2, 5, 10, 20, 50) if (high - low) / (size * f) <= most + 1e-9)
    step = max(step, 1.0) if integer else step
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    numbers = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return [(n * step, f"{n * step:.{decimals}f}") for n in numbers]


def _log_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Round numbers between powers of ten; none if fewer than two fit."""
    factors = (1, 2, 5) if high - low <= 2 else (1,)
    powers = range(math.floor(low), math.ceil(high) + 1)
    numbers = [f * 10.0**power for power in powers for f in factors]
    found = [n for n in numbers if low - 1e-9 <= math.log10(n) <= high + 1e-9]
    return [(n, f"{n:g}") for n in found] if len(found) > 1 else []


def chart(
    lines: Sequence[Line],
    finding: str,
    x_title: str,
    y_title: str,
    *,
    title: str = "",
    x_scale: Scale = "linear",
    y_scale: Scale = "linear",
    x_unit: str = "",
    y_unit: str = "",
    x_names: Sequence[str] = (),
    y_names: Sequence[str] = (),
    include: tuple[Sequence[float], Sequence[float]] = ((), ()),
    rule: Sequence[tuple[float, float]] = (),
    integer: bool = False,
) -> Chart:
    """Computes a chart.

    Args:
        lines: what is drawn; points that are not finite, or not above 0 on a logarithmic axis, are
            left out.
        finding: what is to be seen, for who cannot see it.
        x_unit: after each number of the horizontal axis.
        y_unit: after each number of the vertical axis.
        x_names: names of 0, 1, ... on the horizontal axis, instead of numbers.
        y_names: names of 0, 1, ... on the vertical axis, from the bottom.
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
    left = max(LEFT, 24 + 5.5 * max(map(len, y_names), default=0))
    across, up = ([*values] for values in include)
    for line in lines:
        across.extend(line.x)
        up += [*line.y, *line.low, *line.high]
    x = _Axis(across, left, RIGHT, x_unit, integer, x_scale, x_names)
    y = _Axis(up, BOTTOM, TOP, y_unit, scale=y_scale, names=y_names)
    least = [0.0 if scale == "log" else -math.inf for scale in (x_scale, y_scale)]
    series = [_series(line, n, x, y, least) for n, line in enumerate(lines)]
    ends = _joined([(x(at), y(value)) for at, value in rule])
    return Chart(finding, x_title, y_title, x.ticks, y.ticks, left, series, ends, title)


def _series(line: Line, number: int, x: _Axis, y: _Axis, least: Sequence[float]) -> Series:
    number = number if line.colour is None else line.colour
    kept = [
        n
        for n, point in enumerate(zip(line.x, line.y, strict=True))
        if all(math.isfinite(v) and v > low for v, low in zip(point, least, strict=True))
    ]
    at = [x(line.x[n]) for n in kept]
    points = list(zip(at, [y(line.y[n]) for n in kept], strict=True))
    area = bars = ""
    if len(line.low):
        ends = [(y(max(line.low[n], least[1] + 1e-12)), y(line.high[n])) for n in kept]
        sides = list(zip(at, ends, strict=True))
        if line.kind == "curve":
            band = [(a, low) for a, (low, _) in sides]
            area = _joined(band + [(a, high) for a, (_, high) in reversed(sides)]) + "z"
        else:
            bars = "".join(f"M{a} {low}V{high}" for a, (low, high) in sides)
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
