"""Heat maps and charts of the pages, in the colours of the page.

A heat map is a table whose cells are shaded by the style sheet: it can be read aloud and printed. A
chart is a small SVG element, whose coordinates are computed here. Neither needs a script.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tfr_moe.analysis.calibration import Calibration
from tfr_moe.analysis.learning_curves import Curve
from tfr_moe.report.formats import percent

MAX_LABEL = 40
LEFT, RIGHT, TOP, BOTTOM = 52.0, 352.0, 8.0, 178.0
"""The drawing area of a chart."""


class Cell(NamedTuple):
    """A cell of a heat map.

    Attributes:
        text: its number.
        share: how strong its colour is, 0 to 1; negative for the other colour.
        hint: what the number is of, for the pointer.
        kind: class of the style sheet, such as `best`.
    """

    text: str
    share: float = 0.0
    hint: str = ""
    kind: str = ""


class HeatMap(NamedTuple):
    """A table of shaded cells, its first row on top.

    Attributes:
        caption: what it shows, with its scale.
        columns: name and class of each column.
        rows: names of the rows.
        cells: [rows, columns].
        corner: what rows and columns are.
    """

    caption: str
    columns: Sequence[tuple[str, str]]
    rows: Sequence[str]
    cells: Sequence[Sequence[Cell]]
    corner: str


class Series(NamedTuple):
    """A line of a chart.

    Attributes:
        name: in the legend.
        points: coordinates.
        bars: x, and both ends of the interval of y.
    """

    name: str
    points: Sequence[tuple[float, float]]
    bars: Sequence[tuple[float, float, float]] = ()


class Chart(NamedTuple):
    """Lines over two axes, in coordinates of the element.

    Attributes:
        finding: what is to be seen, for who cannot see it.
        x_title: quantity and unit.
        y_title: quantity and unit.
        x_ticks: coordinate and number of each tick.
        y_ticks: the same.
        series: the lines.
        rule: ends of a dotted line.
    """

    finding: str
    x_title: str
    y_title: str
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[tuple[float, str]]
    series: Sequence[Series]
    rule: tuple[float, float, float, float]


class _Axis:
    """Maps numbers to coordinates between `start` and `end`, with ticks at round numbers.

    The step of the ticks is 1, 2 or 5 times a power of ten, and they have the decimals that tell
    them apart.
    """

    def __init__(
        self,
        values: Sequence[float],
        start: float,
        end: float,
        unit: str = "",
        integer: bool = False,
    ):
        low, high = min(values), max(values)
        if low == high:
            low, high = low - 0.5, high + 0.5
        size = 10.0 ** math.floor(math.log10((high - low) / 5))
        step = next(size * f for f in (1, 2, 5, 10) if (high - low) / (size * f) <= 5)
        step = max(step, 1.0) if integer else step
        decimals = max(0, -math.floor(math.log10(step) + 1e-9))
        self._low, self._scale, self._start = low, (end - start) / (high - low), start
        numbers = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
        self.ticks = [(self(n * step), f"{n * step:.{decimals}f}{unit}") for n in numbers]

    def __call__(self, value: float) -> float:
        """The coordinate of a value."""
        return round(self._start + (value - self._low) * self._scale, 1)


def label(text: object, most: int = MAX_LABEL) -> str:
    """Text cut to `most` characters.

    Example:
        >>> label("a" * 9, most=4)
        'aaa…'
    """
    plain = str(text)
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"


def attention(run: str, name: str, attention_map: Mapping[str, Any]) -> HeatMap:
    """Attention between groups of items relative to uniform attention (see `AttentionMap`).

    The strongest colour is twice or half of uniform attention, or further off if a cell is: small
    deviations stay pale.
    """
    used = [i for i, row in enumerate(attention_map["pairs"]) if any(row)]
    labels = [label(attention_map["labels"][i]) for i in used]
    lifts = [[attention_map["lift"][i][j] for j in used] for i in used]
    most = max([1.0, *(abs(v - 1) for row in lifts for v in row if v is not None)])
    cells = [
        [
            Cell("–")
            if lift is None
            else Cell(
                f"{lift:.2f}",
                (lift - 1) / most,
                f"{row} attends to {column}: {lift:.2f} times uniform attention",
            )
            for column, lift in zip(labels, values, strict=True)
        ]
        for row, values in zip(labels, lifts, strict=True)
    ]
    caption = f"{run}: attention by {name}, in multiples of uniform attention"
    return HeatMap(caption, [(n, "") for n in labels], labels, cells, "from ↓ to →")


def curves(
    run: str, series: Sequence[Curve], title: str, best_epoch: int, share: bool = False
) -> Chart:
    """Quantities by epoch, the best epoch marked; a share is drawn from 0 % to 100 %."""
    factor, unit, whole = (100.0, " %", [0.0, 100.0]) if share else (1.0, "", [])
    values = [value * factor for curve in series for value in curve.values]
    epochs = [float(epoch) for curve in series for epoch in curve.epochs]
    x = _Axis([*epochs, best_epoch], LEFT, RIGHT, integer=True)
    y = _Axis([*values, *whole], BOTTOM, TOP, unit)
    lines = [
        Series(
            label(curve.name),
            [(x(e), y(v * factor)) for e, v in zip(curve.epochs, curve.values, strict=True)],
        )
        for curve in series
    ]
    last = ", ".join(f"{c.name} {c.values[-1]:.4f}" for c in series if c.values)
    rule = (x(best_epoch), BOTTOM, x(best_epoch), TOP)
    finding = f"{run}, {title} by epoch; at the last epoch: {last}"
    return Chart(finding, "epoch", title, x.ticks, y.ticks, lines, rule)


def calibration(found: Calibration, name: str) -> Chart:
    """Observed share of relevant items against the predicted probability, in per cent."""
    most = 100 * max(*found.predicted, *found.high)
    x, y = _Axis([0, most], LEFT, RIGHT, " %"), _Axis([0, most], BOTTOM, TOP, " %")
    across = [x(100 * value) for value in found.predicted]
    series = Series(
        label(name),
        list(zip(across, [y(100 * value) for value in found.observed], strict=True)),
        [
            (at, y(100 * low), y(100 * high))
            for at, low, high in zip(across, found.low, found.high, strict=True)
        ],
    )
    finding = (
        f"calibration of {name}; it predicts {percent(found.mean_predicted, 1)} on average, "
        f"{percent(found.mean_observed, 1)} of the items are relevant; the dotted line is that of "
        "calibrated predictions"
    )
    titles = ("predicted probability", "observed share of relevant items")
    return Chart(finding, *titles, x.ticks, y.ticks, [series], (LEFT, BOTTOM, x(most), y(most)))
