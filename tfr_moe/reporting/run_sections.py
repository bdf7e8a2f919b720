"""The part of the page about one run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from tfr_moe import webpage
from tfr_moe.analysis.gates import GateReport
from tfr_moe.analysis.lists import ShownItem, ShownList
from tfr_moe.reporting import figures
from tfr_moe.reporting.content import RunPart
from tfr_moe.reporting.figures import Figures
from tfr_moe.reporting.sections import DASH, number

MOST_CATEGORIES = 60
MOST_COLUMNS = 8


def run_section(run: RunPart, place: int, drawn: Figures, opened: bool) -> str:
    """All that is known of a run, in a box that opens."""
    parts = [
        _about(run),
        _curves(run, drawn),
        _calibration(run, drawn),
        *(_gate(run, name, gate, drawn) for name, gate in run.gates.items()),
        _attention(run, drawn),
        _absent(run),
        _lists(run),
    ]
    return (
        f'<details class="run" id="run-{place}"{" open" if opened else ""}>'
        f"<summary><h2>{escape(run.name)}: {escape(run.model)}</h2></summary>\n"
        + "\n".join(part for part in parts if part)
        + "\n</details>"
    )


def _about(run: RunPart) -> str:
    rows = [("model", run.model), ("folder", run.path)]
    rows += [(key, str(value)) for key, value in run.settings.items()]
    if run.parameters is not None:
        rows.append(("parameters", f"{run.parameters:,}"))
    if run.epochs:
        rows.append(("best of", f"{run.epochs}: {run.best_epoch}"))
    if not math.isnan(run.seconds):
        rows.append(("trained in", webpage.duration(run.seconds)))
    rows += [(name, version) for name, version in run.versions.items()]
    return (
        "<h3>Model</h3>\n<p>Settings that are not the model's defaults, and what training said.</p>"
        + webpage.table(["", ""], rows, text=2, box="scroll words")
        + f"<pre>{escape(run.command)}</pre>"
    )


def _curves(run: RunPart, drawn: Figures) -> str:
    curves = run.curves
    if curves is None:
        return ""
    plots = []
    for found, title, share in (
        (curves.losses, "loss", False),
        (curves.metrics, "on validation", False),
        (curves.shares, "share of the maximum", True),
        (curves.gates, "gates", False),
    ):
        if found:
            height = 270 + 18 * (len(found) // 3)
            figure = figures.curves(found, title, curves.best_epoch, share)
            plots.append(f"<div>{drawn.add(figure, height, f'{title} by epoch')}</div>")
    told = ""
    if curves.shares:
        told = (
            " HSC and AdvLoss are shown as shares of their largest possible values: an AdvLoss near "
            "100 % is disagreement for its own sake."
        )
    return (
        f"<h3>Learning curves</h3>\n<p>The dotted line is the epoch that is used, the best by "
        f'{escape(curves.monitor)}.{told}</p>\n<div class="halves columns">{"".join(plots)}</div>'
    )


def _calibration(run: RunPart, drawn: Figures) -> str:
    if not run.probabilities:
        return ""
    blocks = []
    for task, found in run.calibration.items():
        if not found.bins:
            continue
        name = f" of {task}" if task else ""
        plot = drawn.add(figures.calibration(found), 300, f"Calibration{name}")
        blocks.append(
            f"<div><p>Predicted{escape(name)} on average {found.predicted:.2%}, observed "
            f"{found.observed:.2%}; off by {found.expected_error:.2%} on average over "
            f"{found.items:,} items.</p>{plot}</div>"
        )
    return (
        "<h3>Calibration</h3>\n<p>Items of similar predicted probability, about as many in each "
        "point: how many were relevant? On the dotted line the prediction is right.</p>"
        f'<div class="halves columns">{"".join(blocks)}</div>'
    )


def _gate(run: RunPart, name: str, gate: GateReport, drawn: Figures) -> str:
    title = f"Gate of {name}" if name else "Gate map"
    tiles = [
        webpage.tile(
            f"{gate.entropy:.3f}",
            f"entropy in nats, at most {math.log(gate.top_k):.3f} for {gate.top_k} experts",
        ),
        webpage.tile(
            str(len(gate.dead)),
            "dead experts" + (f": {', '.join(map(str, gate.dead))}" if gate.dead else ""),
        ),
        webpage.tile(
            f"{gate.importance_variation:.3f}", "squared variation of the load, 0 is even"
        ),
    ]
    if gate.siblings is not None and gate.strangers is not None:
        tiles.append(
            webpage.tile(
                f"{gate.siblings:.3f}",
                f"similarity of sibling categories' gates; of others {gate.strangers:.3f}",
            )
        )
    use = drawn.add(figures.utilisation(gate), 270, "Utilisation of experts")
    parts = [
        f"<h3>{escape(title)}</h3>\n<p>Over {gate.lists:,} lists with {gate.items:,} items. An expert "
        "with less than a hundredth of an even share (dotted) of the weight is dead.</p>",
        f'<div class="tiles">{"".join(tiles)}</div>',
        use,
    ]
    if gate.top_categories:
        parts.append(_maps(run, gate, drawn))
    return "\n".join(parts)


def _maps(run: RunPart, gate: GateReport, drawn: Figures) -> str:
    tops = gate.top_categories[:MOST_CATEGORIES]
    subs = sorted(gate.sub_categories, key=lambda row: -row.lists)[:MOST_CATEGORIES]
    order = {id(row): place for place, row in enumerate(gate.sub_categories)}
    subs.sort(key=lambda row: order[id(row)])
    rows = [
        [top.parent or "(none)", f"{top.lists:,}", number(top.similarity)]
        for top in gate.top_categories
    ]
    left = len(gate.sub_categories) - len(subs)
    return "\n".join(
        [
            "<p>Which experts serve which top category: mean weight over its lists, the category with "
            "the most lists first.</p>",
            drawn.add(
                figures.gate_map(tops, True), 100 + 22 * len(tops), "Experts by top category"
            ),
            f"<p>By sub-category{f' (the {len(subs)} with the most lists)' if left else ''}, siblings "
            "beside each other.</p>",
            drawn.add(
                figures.gate_map(subs, False), 100 + 17 * len(subs), "Experts by sub-category"
            ),
            "<p>Similarity of siblings: the mean cosine between the gates of a top category's "
            "sub-categories, 1 where all have the same experts.</p>",
            webpage.table(
                ["top category", "lists", "similarity of siblings"],
                rows,
                text=1,
                box="scroll tall",
                attributes={"data-sort": "yes"},
            ),
        ]
    )


def _attention(run: RunPart, drawn: Figures) -> str:
    if not run.attention:
        return ""
    parts = [
        f"<h3>Attention</h3>\n<p>How much an item (row) attends to another (column), as a multiple of "
        f"attention spread evenly over the list, by place in the list and so on; {run.attention_lists:,} "
        "lists.</p>"
    ]
    for name, shown in run.attention.items():
        size = sum(1 for row in shown["pairs"] if any(row))
        plot = drawn.add(figures.attention(shown), 140 + 24 * size, f"Attention by {name}")
        parts.append(f"<h3>by {escape(name)}</h3>{plot}")
    return "\n".join(parts)


def _absent(run: RunPart) -> str:
    """What there is not, in a line."""
    missing = []
    if run.curves is None:
        missing.append("no learning curves, as it is not trained by epochs")
    if not run.probabilities:
        missing.append("no calibration, as its loss does not make probabilities of scores")
    if not run.gates:
        missing.append("no gate map, as it has no experts")
    if not run.attention:
        missing.append("no attention maps, as it has no attention")
    return f'<p class="note">Of this model there is {"; ".join(missing)}.</p>' if missing else ""


def _lists(run: RunPart) -> str:
    found = run.lists
    kinds = [
        ("Worst lists", f"where its {found.metric} is lowest", found.worst),
        ("Best lists", f"where its {found.metric} is highest", found.best),
        ("Lost lists", "where it is furthest below the baseline", found.lost),
        ("Gained lists", "where it is furthest above the baseline", found.gained),
    ]
    return "\n".join(
        f"<h3>{title}</h3>\n<p>{escape(what)}; of equal ones the longest. Relevant items are "
        f"marked.</p>\n{''.join(_list(shown, i == 0) for i, shown in enumerate(lists))}"
        for title, what, lists in kinds
        if lists
    )


def _list(shown: ShownList, opened: bool) -> str:
    values = ", ".join(f"{name} {number(value)}" for name, value in shown.values.items())
    context = "; ".join(f"{name}: {_cell(value)}" for name, value in shown.context.items() if value)
    left = shown.num_items - len(shown.items)
    return (
        f"<details{' open' if opened else ''}><summary>{escape(shown.list_id)}: {escape(values)}, "
        f"{shown.num_items} items</summary>"
        f'<p class="note">{escape(context)}</p>'
        + _items(shown.items)
        + (f'<p class="note">{left} more, none of them relevant.</p>' if left else "")
        + "</details>"
    )


def _items(items: Sequence[ShownItem]) -> str:
    columns = list(items[0].features)[:MOST_COLUMNS]
    headings = ["rank", "score", "label", "shown at", *columns]
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    rows = []
    for item in items:
        cells = [
            str(item.rank),
            f"{item.score:.3f}",
            f"{item.label:g}",
            DASH if item.position is None else str(item.position),
            *(_cell(item.features[name]) for name in columns),
        ]
        marked = " class=relevant" if item.label > 0 else ""
        rows.append(f"<tr{marked}>{''.join(f'<td>{escape(c)}</td>' for c in cells)}</tr>")
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _cell(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:g}"
