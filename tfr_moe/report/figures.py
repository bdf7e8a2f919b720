"""Plotly figures of the report, drawn by the browser in the colours of the page.

Colours are names of CSS variables, such as `var(--ink)`, which `page.js` replaces by their values,
so that a figure follows the light and the dark theme. Series without a colour take those of the
page in order. Names of runs and categories pass through `label`: Plotly interprets HTML in texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from tfr_moe.analysis.learning_curves import Curve
from tfr_moe.errors import UserError
from tfr_moe.evaluation.significance import Comparison
from tfr_moe.scorers.gate_maps import CategoryGate, GateReport

try:
    import plotly.graph_objects as go
except ImportError:
    raise UserError("the report needs plotly: pip install 'tfr_moe[report]'") from None

LEGEND = {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0.0}
SHARES = [[0, "var(--panel)"], [1, "var(--series-2)"]]
LIFTS = [[0, "var(--series-2)"], [0.5, "var(--paper)"], [1, "var(--series-1)"]]
MAX_LABEL = 40
MAX_CATEGORIES = 60
_MAX_NUMBERED_CELLS = 400
_MAX_NUMBERED_EXPERTS = 12
_SYMBOLS = ("circle", "square", "diamond", "cross", "x", "triangle-up")
_DASHES = ("solid", "dash", "dot", "dashdot")


class Drawing(NamedTuple):
    """A figure and its place on the page.

    Attributes:
        figure: data and layout; its height is in the layout.
        label: description for screen readers.
        min_width: in CSS pixels; a narrower window scrolls.
        max_width: in CSS pixels; None for the width of the page.
    """

    figure: go.Figure
    label: str
    min_width: int = 0
    max_width: int | None = None


def label(text: object, most: int = MAX_LABEL) -> str:
    """Text for a figure: cut to `most` characters, with HTML and TeX escaped.

    Example:
        >>> label("<b>"), label("a" * 9, most=4)
        ('&lt;b&gt;', 'aaa…')
    """
    plain = str(text)
    short = plain if len(plain) <= most else f"{plain[: most - 1]}…"
    return escape(short, quote=False).replace("$", "&#36;")


def named_axis(names: Sequence[object], **layout: Any) -> dict[str, Any]:
    """An axis with a name at each of the positions 0, 1, ...; equal labels stay apart."""
    ticks = {"tickvals": list(range(len(names))), "ticktext": [label(name) for name in names]}
    return {**ticks, "automargin": True, "showgrid": False, **layout}


def epoch_axis(epochs: int) -> dict[str, Any]:
    """An axis of epochs with integer ticks."""
    return {"title": "epoch", "dtick": 1 if epochs <= 15 else None, "tickformat": "d"}


def asymmetric(points: Sequence[tuple[float, float, float]]) -> dict[str, Any]:
    """Error bars from (value, low, high)."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [max(high - value, 0.0) for value, _, high in points],
        "arrayminus": [max(value - low, 0.0) for value, low, _ in points],
        "thickness": 1.5,
    }


def heat_map(
    values: Sequence[Sequence[float | None]],
    hints: Sequence[Sequence[str]],
    columns: dict[str, Any],
    rows: dict[str, Any],
    height: int,
    **trace: Any,
) -> go.Figure:
    """A heat map, its first row on top.

    Args:
        values: [rows, columns] numbers, None for an empty cell.
        hints: [rows, columns] texts for the pointer.
        columns: layout of the x axis, see `named_axis`.
        rows: layout of the y axis.
        height: in CSS pixels.
        **trace: further properties of the trace, such as the colour scale.
    """
    figure = go.Figure(
        go.Heatmap(
            z=values,
            hovertext=hints,
            hoverinfo="text",
            xgap=1,
            ygap=1,
            **{"showscale": False, **trace},
        )
    )
    rows = {**rows, "autorange": "reversed"}
    return figure.update_layout(xaxis=columns, yaxis=rows, height=height)


def differences(comparisons: Mapping[str, Mapping[str, Comparison]], metrics: int) -> Drawing:
    """Differences from the baseline by run and metric, with intervals."""
    figure = go.Figure()
    for index, (run, by_metric) in enumerate(comparisons.items()):
        found = list(by_metric.values())
        figure.add_scatter(
            y=[label(metric) for metric in by_metric],
            x=[c.difference for c in found],
            error_x=asymmetric([(c.difference, c.low, c.high) for c in found]),
            mode="markers",
            orientation="h",
            name=label(run),
            marker={"symbol": _SYMBOLS[index % len(_SYMBOLS)], "size": 9},
            hovertemplate="%{y}: %{x:+.4f}",
        )
    figure.update_layout(
        legend=LEGEND,
        showlegend=True,
        scattermode="group",
        height=110 + metrics * (14 + 14 * len(comparisons)),
        xaxis={"title": "difference from the baseline", "zeroline": True, "tickformat": "+.3f"},
        yaxis={"autorange": "reversed", "automargin": True, "type": "category"},
    )
    return Drawing(figure, "Differences from the baseline")


def curves(series: Sequence[Curve], title: str, best_epoch: int, share: bool = False) -> Drawing:
    """Quantities by epoch, the best epoch marked; `share` formats them as percentages."""
    figure = go.Figure()
    for index, curve in enumerate(series):
        figure.add_scatter(
            x=curve.epochs,
            y=curve.values,
            name=label(curve.name),
            mode="lines+markers",
            line={"dash": _DASHES[index // 5 % len(_DASHES)]},
            hovertemplate="%{y:.4f}",
        )
    figure.add_vline(x=best_epoch, line=_thin_line())
    figure.update_layout(
        legend=LEGEND,
        showlegend=True,
        hovermode="x unified",
        height=270 + 18 * (len(series) // 3),
        xaxis=epoch_axis(len(series[0].epochs)),
        yaxis={
            "title": title,
            "tickformat": "~%" if share else None,
            "rangemode": "tozero" if share else "normal",
        },
    )
    return Drawing(figure, f"{title} by epoch")


def _thin_line() -> dict[str, Any]:
    return {"dash": "dot", "width": 1, "color": "var(--muted)"}


def _numbered(yes: bool, template: str) -> dict[str, Any]:
    """Numbers in the cells of a heat map, or else a colour bar."""
    return {"texttemplate": template, "textfont": {"size": 10}} if yes else {"showscale": True}


def gate_map(gates: Sequence[CategoryGate], top: bool) -> Drawing:
    """Mean weight of each expert (columns) in the categories with the most lists (rows)."""
    largest = sorted(range(len(gates)), key=lambda i: -gates[i].lists)[:MAX_CATEGORIES]
    gates = [gates[i] for i in sorted(largest)]
    names = [
        (gate.parent if top else f"{gate.parent} > {gate.child}") or "(none)" for gate in gates
    ]
    experts = range(len(gates[0].weights))
    hints = [
        [
            f"{label(name)}<br>expert {i}: {gate.weights[i]:.3f}<br>{gate.lists:,} lists"
            for i in experts
        ]
        for name, gate in zip(names, gates, strict=True)
    ]
    figure = heat_map(
        [gate.weights for gate in gates],
        hints,
        named_axis(experts, title="expert"),
        named_axis(names),
        100 + (22 if top else 17) * len(gates),
        colorscale=SHARES,
        zmin=0,
        **_numbered(len(experts) <= _MAX_NUMBERED_EXPERTS, "%{z:.2f}"),
        colorbar={"title": "weight", "thickness": 10},
    )
    return Drawing(figure, f"Experts by {'top category' if top else 'sub-category'}")


def utilisation(gate: GateReport) -> Drawing:
    """Share of the gate weight of each expert, and of the times it is selected."""
    experts = list(range(gate.num_experts))
    figure = go.Figure()
    figure.add_bar(x=experts, y=gate.utilisation, name="share of the gate weight")
    figure.add_bar(
        x=experts, y=[part / gate.top_k for part in gate.load], name="share of the selections"
    )
    figure.add_hline(y=1 / gate.num_experts, line=_thin_line())
    figure.update_traces(hovertemplate="expert %{x}: %{y:.1%}")
    figure.update_layout(
        legend=LEGEND,
        barmode="group",
        height=270,
        xaxis={"title": "expert", "type": "category"},
        yaxis={"title": "share", "tickformat": ".0%"},
    )
    return Drawing(figure, "Utilisation of experts")


def attention(name: str, attention_map: Mapping[str, Any]) -> Drawing:
    """Attention between groups of items relative to uniform attention (see `AttentionMap`)."""
    used = [i for i, row in enumerate(attention_map["pairs"]) if any(row)]
    labels = [str(attention_map["labels"][i]) for i in used]
    lifts = [[attention_map["lift"][i][j] for j in used] for i in used]
    hints = [
        [
            f"{label(row)} attends to {label(column)}:<br>{_times(lift)} uniform attention"
            for column, lift in zip(labels, values, strict=True)
        ]
        for row, values in zip(labels, lifts, strict=True)
    ]
    figure = heat_map(
        lifts,
        hints,
        named_axis(labels, title="attended item"),
        named_axis(labels, title="attending item"),
        140 + 24 * len(used),
        colorscale=LIFTS,
        zmid=1,
        **_numbered(len(used) ** 2 <= _MAX_NUMBERED_CELLS, "%{z:.2f}"),
        colorbar={"title": "times<br>uniform", "thickness": 10},
    )
    return Drawing(figure, f"Attention by {name}", min_width=160 + 26 * len(used))


def _times(lift: float | None) -> str:
    return "–" if lift is None else f"{lift:.2f} times"
