"""Heat maps and charts of the pages, in the colours of the page, and the learning curves of a run.

A heat map is a table whose cells are shaded by the style sheet: it can be read aloud and printed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tfr_moe.analysis.calibration import Calibration
from tfr_moe.report.charts import Chart, Line, chart
from tfr_moe.utils.formats import percent

MAX_LABEL = 40
_SHARES = ("share of the maximum", "weight of the busiest experts")  # axes of values from 0 to 1
_GATES = {
    "entropy of the gate (nats)": "gate_entropy",
    "weight of the busiest experts": "busiest_share",
    "dead experts": "dead_experts",
}


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
    """Text cut to `most` characters."""
    plain = str(text)
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"


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


@dataclass(frozen=True)
class Curve:
    """One quantity by epoch, named as in `history.json`; `hsc_share` is HSC over its maximum."""

    name: str
    epochs: list[int]
    values: list[float]


def learning_curves(history: Sequence[Mapping[str, Any]], top_k: int) -> dict[str, list[Curve]]:
    r"""The curves of a run by the title of the axis that they share, from `history.json` and K.

    HSC (eq. 10) is at most 2, and 1 for K = 1, where U holds only one of the two gates' experts:

    $$ \sum_{i \in U} (p_i - q_i)^2 \le \sum_i p_i^2 + \sum_i q_i^2 \le 2 $$
    """
    names = list(dict.fromkeys(name for entry in history for name in entry))

    def curve(name: str) -> Curve:
        points = {e["epoch"]: e[name] for e in history if math.isfinite(e.get(name, math.nan))}
        if name not in hsc:
            return Curve(name, list(points), list(points.values()))
        shares = [value / min(top_k, 2) for value in points.values()]
        return Curve(name.replace("hsc", "hsc_share", 1), list(points), shares)

    hsc = [name for name in names if name == "hsc" or name.startswith("hsc_")]
    validation = [n for n in names if n.startswith("val_") and not n.endswith("loss")]
    groups: dict[str, list[str]] = {
        "loss": [n for n in ("loss", "val_loss") if n in names],
        "metric on validation lists": validation,
        "share of the maximum": [n for n in names if n in hsc or n.startswith("adversarial_share")],
        **{title: [n for n in names if n.startswith(part)] for title, part in _GATES.items()},
    }
    return {title: [curve(name) for name in group] for title, group in groups.items() if group}


def curves(run: str, series: Sequence[Curve], title: str, best_epoch: int) -> Chart:
    """Quantities by epoch, the best epoch marked; shares are drawn from 0 % to 100 %."""
    factor, unit, whole = (100.0, " %", (0.0, 100.0)) if title in _SHARES else (1.0, "", ())
    lines = [
        Line(label(curve.name), curve.epochs, [factor * value for value in curve.values])
        for curve in series
    ]
    last = ", ".join(f"{c.name} {c.values[-1]:.4f}" for c in series if c.values)
    return chart(
        lines,
        f"{run}, {title} by epoch; at the last epoch: {last}",
        "epoch",
        title,
        y_unit=unit,
        include=([best_epoch], whole),
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
