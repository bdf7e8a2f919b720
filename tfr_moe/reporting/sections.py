"""The parts of the page about all runs together: data, headline, categories, sizes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from tfr_moe import webpage
from tfr_moe.evaluation.categories import CategoryRow
from tfr_moe.reporting import figures
from tfr_moe.reporting.content import DataPart, Report, SeedsPart
from tfr_moe.reporting.figures import Figures

DASH = "–"
LEVEL_NAMES = {"top": "top categories", "sub": "sub-categories"}


def number(value: float | None, sign: bool = False) -> str:
    """Four decimals, a dash for what is undefined.

    Example:
        >>> number(0.5), number(0.012, sign=True), number(float("nan"))
        ('0.5000', '+0.0120', '–')
    """
    if value is None or math.isnan(value):
        return DASH
    return f"{value:+.4f}" if sign else f"{value:.4f}"


def interval(low: float, high: float, sign: bool = False) -> str:
    """Two ends; a dash where there is no interval."""
    return DASH if math.isnan(low) else f"{number(low, sign)} to {number(high, sign)}"


def head(report: Report) -> str:
    """Title, the most important numbers, and what can be jumped to."""
    evaluation, metric = report.evaluation, report.metric
    tiles: list[str] = []
    for name, summaries in evaluation.models.items():
        found = summaries[metric]
        what = f"{metric} of {name} ({interval(found.low, found.high)})"
        tiles.append(webpage.tile(number(found.mean), what, not tiles))
    for name, comparisons in evaluation.comparisons.items():
        against = comparisons[metric]
        told = interval(against.low, against.high, sign=True)
        tiles.append(
            webpage.tile(
                number(against.difference, sign=True),
                f"{name} over {evaluation.baseline} ({told})",
            )
        )
    links = "".join(
        f'<a href="#run-{i}">{escape(run.name)}</a>' for i, run in enumerate(report.runs)
    )
    return (
        f"<h1>{escape(', '.join(run.name for run in report.runs))}</h1>\n"
        f'<p class="lead">{evaluation.lists:,} lists of the {escape(report.split)} split of '
        f"{escape(report.data.path)}. Intervals are of 95 % over lists.</p>\n"
        f'<div class="tiles">{"".join(tiles)}</div>\n<nav>{links}</nav>'
    )


def data_section(data: DataPart) -> str:
    """What data."""
    about = [
        ("folder", data.path),
        ("built from", data.source or "not built by tfr-moe build"),
        ("labels", ", ".join(data.labels)),
        ("features", ", ".join(f"{n} {kind}" for kind, n in data.features.items())),
        (
            "categories",
            f"{data.categories[0]:,} top ({data.hierarchy[0]}), "
            f"{data.categories[1]:,} sub ({data.hierarchy[1]}) in training"
            if data.hierarchy
            else "none: the schema has no hierarchy",
        ),
        *((f"note: {name}", str(note)) for name, note in data.notes.items()),
    ]
    counted = list(dict.fromkeys(key for counts in data.splits.values() for key in counts))
    rows = [
        [split, *(f"{counts[key]:,}" if key in counts else DASH for key in counted)]
        for split, counts in data.splits.items()
    ]
    return (
        "<h2>Data</h2>\n"
        + webpage.table(["", ""], about, text=2, box="scroll words")
        + (webpage.table(["split", *counted], rows, text=1) if rows else "")
    )


def headline_section(report: Report, drawn: Figures) -> str:
    """Means with intervals, and differences from the baseline."""
    evaluation = report.evaluation
    rows = [
        [
            metric,
            name,
            number(s[metric].mean),
            interval(s[metric].low, s[metric].high),
            f"{s[metric].judged:,}",
            f"{s[metric].left_out:,}",
        ]
        for metric in evaluation.metrics
        for name, s in evaluation.models.items()
    ]
    parts = [
        "<h2>Headline numbers</h2>\n<p>Each list is scored once and judged by itself; a metric is the "
        "mean over the lists that it can judge. Lists with nothing relevant are left out.</p>",
        webpage.table(["metric", "run", "mean", "interval", "lists", "left out"], rows, text=2),
    ]
    if evaluation.comparisons:
        height = 90 + len(evaluation.metrics) * (14 + 14 * len(evaluation.comparisons))
        plot = drawn.add(
            figures.differences(evaluation.comparisons), height, "Differences from the baseline"
        )
        rows = [
            [
                metric,
                name,
                number(found[metric].difference, sign=True),
                interval(found[metric].low, found[metric].high, sign=True),
                "< 0.0001" if found[metric].p_value < 1e-4 else number(found[metric].p_value),
            ]
            for metric in evaluation.metrics
            for name, found in evaluation.comparisons.items()
        ]
        parts += [
            f"<h2>Against {escape(str(evaluation.baseline))}</h2>\n<p>Differences on the same lists: "
            "bootstrap interval over lists and p of the paired t-test. They hold for these trained "
            "models; another seed may move a metric by more.</p>",
            plot,
            webpage.table(["metric", "run", "difference", "interval", "p"], rows, text=2),
        ]
    return "\n".join([*parts, seeds_section(report.seeds, report.metric)])


def seeds_section(seeds: Sequence[SeedsPart], metric: str) -> str:
    """Runs of one configuration taken together."""
    if not seeds:
        return ""
    rows = []
    for part in seeds:
        mean, against = part.means[metric], part.differences.get(metric)
        rows.append(
            [
                ", ".join(part.runs),
                number(mean.mean),
                interval(mean.low, mean.high),
                DASH if against is None else number(against.difference, sign=True),
                DASH if against is None else interval(against.low, against.high, sign=True),
            ]
        )
    return (
        f"<h2>Over seeds</h2>\n<p>{escape(metric)} of runs that differ in their seed only, taken "
        "together: the mean with a t interval over runs, and the difference from the first group with "
        "a bootstrap interval over runs and lists at once. This is what a claim about a kind of model "
        "rests on; below five runs a side the interval is rough.</p>\n"
        + webpage.table(["runs", "mean", "interval", "difference", "interval"], rows, text=1)
    )


def sizes_section(report: Report, drawn: Figures) -> str:
    """Gain by category size."""
    if not report.sizes:
        return "<h2>By size of the category</h2>\n<p>The schema has no hierarchy of categories.</p>"
    plots = []
    for level, found in report.sizes.items():
        label = f"By training size of {LEVEL_NAMES[level]}"
        plot = drawn.add(figures.by_size(found, report.metric), 300, label)
        plots.append(f"<div><h3>{escape(label)}</h3>{plot}</div>")
    return (
        "<h2>By size of the category</h2>\n<p>Categories in groups of about as many categories each, "
        "those with the fewest training lists first: do small categories gain? Intervals of 95 % over "
        f'lists.</p>\n<div class="halves columns">{"".join(plots)}</div>'
    )


def category_section(report: Report) -> str:
    """The tables by category."""
    levels = {"top": report.evaluation.categories, "sub": report.sub_categories}
    parts = []
    for level, rows in levels.items():
        if rows:
            name = LEVEL_NAMES[level]
            parts.append(f"<h3>{len(rows):,} {name}</h3>{_category_table(rows, level)}")
    if not parts:
        return ""
    note = "; beside it the difference from the baseline" if report.evaluation.comparisons else ""
    return (
        f"<h2>By category</h2>\n<p>{escape(report.metric)}, the mean over the lists judged{note}. "
        "A mean over few lists is noise. Click a heading to sort.</p>\n" + "\n".join(parts)
    )


def _category_table(rows: Sequence[CategoryRow], level: str) -> str:
    models = list(rows[0].means)
    headings = ["category", "lists", "positives", "judged"]
    for model in models:
        headings.append(model)
        if model in rows[0].differences:
            headings.append(f"{model} diff.")

    def cells() -> Iterable[list[str]]:
        for row in rows:
            found = [row.category or "(none)"]
            found += [f"{n:,}" for n in (row.lists, row.positives, row.judged)]
            for model in models:
                found.append(number(row.means[model]))
                if model in row.differences:
                    found.append(number(row.differences[model], sign=True))
            yield found

    name = f"categories-{level}"
    return (
        f'<div class="search"><label>Search <input type="search" data-table="{name}"></label>'
        f'<span class="note" id="{name}-count"></span></div>'
        + webpage.table(
            headings,
            cells(),
            text=1,
            box="scroll tall",
            attributes={"id": name, "data-sort": "yes"},
        )
    )
