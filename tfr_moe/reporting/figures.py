"""Interactive figures, drawn in the browser by Plotly; colours come from the page, for light, dark and paper.

A figure says what it shows, not how it looks: series take the page's colours in their order, and a heat
map names its scale in `meta`: `share` from nothing to much, `lift` around 1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tfr_moe.analysis.calibration import CalibrationReport
from tfr_moe.analysis.curves import Curve
from tfr_moe.analysis.gates import CategoryGate, GateReport
from tfr_moe.analysis.sizes import SizeBucket
from tfr_moe.errors import UserError
from tfr_moe.evaluation.significance import Comparison

try:
    import plotly.graph_objects as go
    from plotly.offline import get_plotlyjs
except ImportError:
    raise UserError("the report needs plotly: pip install 'tfr_moe[report]'") from None

_NUMBERED_CELLS = 400
_LEGEND = {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0.0}
_SYMBOLS = ("circle", "square", "diamond", "cross", "x", "triangle-up")


class Figures:
    """Collects the figures of a page.

    Example:
        >>> figures = Figures()
        >>> html = figures.add(go.Figure(go.Scatter(y=[1, 2])), 200, "a line")
        >>> "aria-label='a line'" in html.replace(chr(34), chr(39)), "figure-1" in figures.script()
        (True, True)
    """

    def __init__(self) -> None:
        self._specs: list[dict[str, Any]] = []

    def add(self, figure: go.Figure, height: int, label: str) -> str:
        """The element in which a figure is drawn.

        Args:
            figure: its data and layout, without colours.
            height: in CSS pixels.
            label: what it shows, for those who don't see it; without quotation marks.
        """
        figure.update_layout(template=None, height=height)
        self._specs.append(figure.to_plotly_json())
        name = f"figure-{len(self._specs)}"
        return (
            f'<div class="plot" id="{name}" style="height:{height}px" role="img" '
            f'aria-label="{label}"></div>'
        )

    def script(self) -> str:
        """All figures as data for the page's script."""
        specs = {f"figure-{i}": spec for i, spec in enumerate(self._specs, start=1)}
        # A script element ends at the first "</".
        text = json.dumps(specs, default=lambda array: array.tolist()).replace("</", "<\\/")
        return f'<script type="application/json" id="figures">{text}</script>'


def library() -> str:
    """Plotly's own script."""
    return get_plotlyjs()


def differences(comparisons: Mapping[str, Mapping[str, Comparison]]) -> go.Figure:
    """A dot with its interval for each run and metric: the difference from the baseline."""
    figure = go.Figure()
    for place, (run, found) in enumerate(comparisons.items()):
        figure.add_scatter(
            y=list(found),
            x=[c.difference for c in found.values()],
            error_x=_reach([(c.difference, c.low, c.high) for c in found.values()]),
            mode="markers",
            orientation="h",
            name=run,
            marker={"symbol": _SYMBOLS[place % len(_SYMBOLS)], "size": 9},
            hovertemplate="%{y}: %{x:+.4f}",
        )
    figure.update_layout(
        legend=_LEGEND,
        scattermode="group",
        xaxis={"title": "difference from the baseline", "zeroline": True, "tickformat": "+.3f"},
        yaxis={"autorange": "reversed", "automargin": True},
    )
    return figure


def _reach(points: Sequence[tuple[float, float, float]]) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [max(high - mean, 0.0) for mean, _, high in points],
        "arrayminus": [max(mean - low, 0.0) for mean, low, _ in points],
        "thickness": 1.5,
    }


def by_size(found: Mapping[str, Sequence[SizeBucket]], metric: str) -> go.Figure:
    """The gain over the baseline, or for a single run the metric, by buckets of training size."""
    gains = {run: rows for run, rows in found.items() if rows[0].difference is not None}
    figure = go.Figure()
    for place, (run, rows) in enumerate((gains or found).items()):
        values = [row.mean if row.difference is None else row.difference for row in rows]
        figure.add_scatter(
            x=[row.name for row in rows],
            y=values,
            error_y=_reach([(v, r.low, r.high) for v, r in zip(values, rows, strict=True)]),
            customdata=[[row.categories, row.judged] for row in rows],
            mode="markers",
            name=run,
            marker={"symbol": _SYMBOLS[place % len(_SYMBOLS)], "size": 9},
            hovertemplate="%{y:.4f}<br>%{customdata[0]} categories, %{customdata[1]} lists judged",
        )
    figure.update_layout(
        legend=_LEGEND,
        showlegend=len(gains) > 1,
        scattermode="group",
        xaxis={"title": "group: training lists of a category", "type": "category"},
        yaxis={
            "title": f"gain in {metric}" if gains else metric,
            "tickformat": "+.3f" if gains else ".3f",
            "zeroline": bool(gains),
        },
    )
    return figure


def curves(found: Sequence[Curve], title: str, best_epoch: int, share: bool = False) -> go.Figure:
    """Quantities by epoch, the best epoch marked."""
    figure = go.Figure()
    for place, curve in enumerate(found):
        figure.add_scatter(
            x=curve.epochs,
            y=curve.values,
            name=curve.name,
            mode="lines+markers",
            line={"dash": ("solid", "dash", "dot", "dashdot")[place // 5 % 4]},
            hovertemplate="%{y:.4f}",
        )
    figure.add_vline(x=best_epoch, line_dash="dot", line_width=1, opacity=0.6)
    figure.update_layout(
        legend=_LEGEND,
        showlegend=True,
        hovermode="x unified",
        xaxis={"title": "epoch", "dtick": 1 if len(found[0].epochs) <= 15 else None},
        yaxis={
            "title": title,
            "tickformat": ".0%" if share else None,
            "rangemode": "tozero" if share else "normal",
        },
    )
    return figure


def gate_map(gates: Sequence[CategoryGate], top: bool) -> go.Figure:
    """Mean weight of each expert (columns) in each category (rows)."""
    names = [gate.parent if top else f"{gate.parent} > {gate.child}" for gate in gates]
    weights = [gate.weights for gate in gates]
    experts = len(weights[0])
    figure = go.Figure(
        go.Heatmap(
            z=weights,
            x=[str(i) for i in range(experts)],
            y=[name or "(none)" for name in names],
            meta="share",
            zmin=0,
            customdata=[[gate.lists] * experts for gate in gates],
            texttemplate="%{z:.2f}" if experts <= 12 and top else None,
            textfont={"size": 11},
            hovertemplate="%{y}<br>expert %{x}: %{z:.3f}<br>%{customdata} lists<extra></extra>",
            colorbar={"title": "weight", "thickness": 10},
            xgap=1,
            ygap=1,
        )
    )
    figure.update_layout(
        xaxis={"title": "expert", "type": "category", "showgrid": False},
        yaxis={"type": "category", "autorange": "reversed", "automargin": True, "showgrid": False},
    )
    return figure


def utilisation(gate: GateReport) -> go.Figure:
    """Share of the gate weight of each expert, beside an even share."""
    experts = [str(i) for i in range(gate.num_experts)]
    figure = go.Figure()
    figure.add_bar(x=experts, y=gate.utilisation, name="share of the weight")
    figure.add_bar(
        x=experts, y=[part / gate.top_k for part in gate.load], name="share of the choices"
    )
    figure.add_hline(y=1 / gate.num_experts, line_dash="dot", line_width=1, opacity=0.7)
    figure.update_traces(hovertemplate="expert %{x}: %{y:.1%}")
    figure.update_layout(
        legend=_LEGEND,
        barmode="group",
        xaxis={"title": "expert", "type": "category"},
        yaxis={"tickformat": ".0%"},
    )
    return figure


def attention(shown: Mapping[str, Any]) -> go.Figure:
    """Attention between groups of items over an even spread (see `AttentionMap`)."""
    labels = [str(label) for label in shown["labels"]]
    used = [i for i, row in enumerate(shown["pairs"]) if any(row)]
    cells = len(used) ** 2
    figure = go.Figure(
        go.Heatmap(
            z=[[shown["lift"][i][j] for j in used] for i in used],
            x=[labels[i] for i in used],
            y=[labels[i] for i in used],
            meta="lift",
            zmid=1,
            texttemplate="%{z:.1f}" if cells <= _NUMBERED_CELLS else None,
            textfont={"size": 10},
            hovertemplate="%{y} attends to %{x}: %{z:.2f} times an even share<extra></extra>",
            colorbar={"title": "times<br>even", "thickness": 10},
            xgap=1,
            ygap=1,
        )
    )
    figure.update_layout(
        xaxis={"title": "attended to", "type": "category", "showgrid": False},
        yaxis={
            "title": "attends",
            "type": "category",
            "autorange": "reversed",
            "automargin": True,
            "showgrid": False,
        },
    )
    return figure


def calibration(found: CalibrationReport) -> go.Figure:
    """Observed share of relevant items against the predicted one."""
    most = max(max(b.predicted, b.high) for b in found.bins)
    figure = go.Figure()
    figure.add_scatter(
        x=[0, most],
        y=[0, most],
        mode="lines",
        name="as predicted",
        line={"dash": "dot", "width": 1},
        hoverinfo="skip",
    )
    figure.add_scatter(
        x=[b.predicted for b in found.bins],
        y=[b.observed for b in found.bins],
        error_y=_reach([(b.observed, b.low, b.high) for b in found.bins]),
        customdata=[b.items for b in found.bins],
        mode="lines+markers",
        name="observed",
        hovertemplate="predicted %{x:.1%}, observed %{y:.1%}<br>%{customdata} items<extra></extra>",
    )
    figure.update_layout(
        showlegend=False,
        xaxis={"title": "predicted probability", "tickformat": ".0%", "rangemode": "tozero"},
        yaxis={"title": "observed share", "tickformat": ".0%", "rangemode": "tozero"},
    )
    return figure
