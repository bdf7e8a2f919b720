"""Heat maps and charts of the pages, and the learning curves of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from tfr_moe.analysis.calibration import Calibration
from tfr_moe.report.charts import Chart, Line, chart
from tfr_moe.utils.formats import percent

MAX_LABEL = 40
_SHARES = ("AdvLoss, share of its maximum", "weight of the busiest experts")
"""Axes of values from 0 to 1."""
_PARTS = {
    "HSC": "hsc",
    "AdvLoss, share of its maximum": "adversarial_share",
    "entropy of the gate (nats)": "gate_entropy",
    "weight of the busiest experts": "busiest_share",
    "dead experts": "dead_experts",
}
"""Title of an axis -> how the names of its quantities begin."""
Curves: TypeAlias = dict[str, dict[int, float]]
"""Values by epoch of quantities, named as in `history.json`."""


class Cell(NamedTuple):
    """A cell of a heat map.

    Attributes:
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
        cells: [rows, columns].
        corner: what rows and columns are.
    """

    caption: str
    columns: Sequence[tuple[str, str]]
    rows: Sequence[str]
    cells: Sequence[Sequence[Cell]]
    corner: str


def label(text: object, most: int = MAX_LABEL) -> str:
    """Text of at most `most` characters; a longer one keeps its beginning and its end."""
    plain, half = str(text), most // 2
    return plain if len(plain) <= most else f"{plain[: most - half - 1]}…{plain[-half:]}"


def attention(run: str, name: str, attention_map: Mapping[str, Any]) -> HeatMap:
    """Attention between groups of items relative to uniform attention, see `AttentionMap`.

    The strongest colour is twice or half of uniform attention, or further off if a cell is.
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


def learning_curves(history: Sequence[Mapping[str, Any]]) -> dict[str, Curves]:
    """The curves of a run by the title of the axis that they share, from `history.json`."""

    def points(name: str) -> dict[int, float]:
        return {e["epoch"]: e[name] for e in history if math.isfinite(e.get(name, math.nan))}

    names = list(dict.fromkeys(name for entry in history for name in entry))
    validation = [n for n in names if n.startswith("val_") and not n.endswith("loss")]
    groups: dict[str, list[str]] = {
        "loss": [n for n in ("loss", "val_loss") if n in names],
        "metric on validation lists": validation,
        **{title: [n for n in names if n.startswith(part)] for title, part in _PARTS.items()},
    }
    return {title: {n: points(n) for n in group} for title, group in groups.items() if group}


def curves(run: str, points_of: Curves, title: str, best_epoch: int) -> Chart:
    """Quantities by epoch, the best epoch marked; shares are drawn from 0 % to 100 %."""
    factor, unit = (100.0, " %") if title in _SHARES else (1.0, "")
    ends = (0.0, 100.0) if title in _SHARES else (0.0,) if title in _PARTS else ()
    lines = [
        Line(label(name), list(points), [factor * value for value in points.values()])
        for name, points in points_of.items()
    ]
    last = ", ".join(
        f"{name} {[*points.values()][-1]:.4f}" for name, points in points_of.items() if points
    )
    return chart(
        lines,
        f"{run}, {title} by epoch; at the last epoch: {last}",
        "epoch",
        title,
        y_unit=unit,
        include=([best_epoch], ends),
        rule=[(best_epoch, -math.inf), (best_epoch, math.inf)],
        integer=True,
    )


def calibration(measured: Calibration, name: str) -> Chart:
    """Observed share of relevant items against the predicted probability, in per cent."""
    predicted, observed, low, high = (
        [100 * value for value in values]
        for values in (measured.predicted, measured.observed, measured.low, measured.high)
    )
    most = max(*predicted, *high)
    finding = (
        f"calibration of {name}; it predicts {percent(measured.mean_predicted, 1)} on average, "
        f"{percent(measured.mean_observed, 1)} of the items are relevant; the dotted line is that "
        "of calibrated predictions"
    )
    return chart(
        [Line(label(name), predicted, observed, low, high)],
        finding,
        "predicted probability",
        "observed share of relevant items",
        x_unit=" %",
        y_unit=" %",
        include=((0.0, most), (0.0, most)),
        rule=[(0.0, 0.0), (most, most)],
    )
