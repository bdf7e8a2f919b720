"""The page of a drift report: what has drifted, by how much, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tfr_moe.analysis.drift import ALL, MEASURES, DriftRow
from tfr_moe.analysis.drift_limits import DriftLimits
from tfr_moe.report.figures import Cell, HeatMap, label
from tfr_moe.report.html import Section, render_sections
from tfr_moe.utils.formats import DASH, command, count

_HEADINGS = [*((name, "term") for name in MEASURES.values()), ("mean", "")]
_REMEDIES = {
    "missing": "Find out why values are missing, or no longer are",
    "out_of_vocabulary": "Build newer data with a new vocabulary and train on it",
    "psi": "Check source and unit; if the change is real, train on the new data",
}
_MOST = 4  # names in a sentence
_MOST_COLUMNS, _MOST_CATEGORIES = 30, 60  # of a map


def render_drift(
    rows: Sequence[DriftRow],
    reference: str | Path,
    current: str | Path,
    limits: DriftLimits | None = None,
) -> str:
    """Renders the page of `tfr-moe drift` for the rows of `measure_drift` with the same limits."""
    limits = limits or DriftLimits()
    overall = sorted((row for row in rows if row.category == ALL), key=_excess, reverse=True)
    # The row of a column over all lists counts, else the category that is furthest off.
    by_category = sorted((row for row in rows if row.category), key=_excess, reverse=True)
    worst = {row.column: row for row in reversed([*overall, *by_category]) if row.exceeded}
    drifted = sorted(worst.values(), key=_excess, reverse=True)
    total = len(overall)
    sentences = [_sentence(row) for row in drifted[:_MOST]]
    if len(drifted) > _MOST:
        sentences.append(f"And {len(drifted) - _MOST} more.")
    categories = {row.category for row in by_category}
    lists = f"{count(rows[0].current_lists)} lists, reference {count(rows[0].reference_lists)}"
    return render_sections(
        title=f"Has {Path(current).name} drifted from {Path(reference).name}?",
        lead=f"{current} against {reference} · {lists} · {len(categories)} top categories",
        headline=f"{len(drifted)} of {total} columns have drifted" if drifted else "No drift",
        sentences=sentences or [f"All {total} columns are within limits, in each category too."],
        sections=[
            _columns(overall, limits),
            *([_categories(by_category, len(categories))] if categories else []),
        ],
        steps=_steps(drifted, current),
        bad=bool(drifted),
    )


def _excess(row: DriftRow) -> float:
    """The largest number in multiples of what is allowed; 0 within all limits."""
    multiples = (row.change(name) / (most or 1e-9) for name, most in row.exceeded.items())
    return max(multiples, default=0.0)


def _mean(row: DriftRow, before: str = "({})") -> str:
    """The mean in the unit of the data, with that of the reference."""
    if row.mean is None or row.reference_mean is None:
        return DASH
    return f"{row.mean:,.4g} {before.format(f'{row.reference_mean:,.4g}')}"


def _sentence(row: DriftRow) -> str:
    units = {"psi": ("", 1), "mean_shift": (" sd", 1)}
    parts = []
    for measure, allowed in row.exceeded.items():
        unit, factor = units.get(measure, (" percentage points", 100))
        measured = f"{MEASURES[measure]} {row.text(measure, 'instead of {}')}"
        if measure == "mean_shift":
            measured += f" (mean {_mean(row, 'instead of {}')})"
        parts.append(f"{measured}, allowed: {factor * allowed:.2f}{unit}")
    where = f" in {row.category}" if row.category else ""
    return f"{row.column}{where}: {'; '.join(parts)}."


def _steps(drifted: Sequence[DriftRow], current: str | Path) -> list[tuple[str, str]]:
    """What to do about each kind of drift, with its columns, and then."""
    columns: dict[str, list[str]] = {}
    for row in drifted:
        kind = next((kind for kind in _REMEDIES if kind in row.exceeded), "psi")
        columns.setdefault(kind, []).append(row.column)
    steps = [
        (f"{_REMEDIES[kind]}: {', '.join(names[:_MOST])}{', …' if names[_MOST:] else ''}.", "")
        for kind, names in columns.items()
    ]
    train = command("train", "--from", "RUN", "--data", current, "--out", "NEW_RUN")
    return [*steps, ("Then train." if steps else "Train and publish as usual.", train)]


def _cell(above: bool, text: str, share: float = 0.0) -> Cell:
    return Cell(f"✕ {text}", kind="bad") if above else Cell(text, min(share, 1.0) / 2)


def _columns(rows: Sequence[DriftRow], limits: DriftLimits) -> Section:
    cells = []
    for row in rows:
        of = limits.of(row.column)
        shares = {name: row.change(name) / (getattr(of, name) or 1e9) for name in MEASURES}
        drawn = [_cell(n in row.exceeded, row.text(n), v) for n, v in shares.items()]
        cells.append([*drawn, Cell(_mean(row))])
    names = [label(row.column) for row in rows]
    most = max(rows, key=lambda row: row.psi)
    return Section(
        "Columns",
        f"The largest PSI is that of {most.column}: {most.psi:.2f}.",
        [HeatMap("Drift of each column over all lists", _HEADINGS, names, cells, "column")],
        "In brackets: the reference; sd: its standard deviations. Means are in the unit of the "
        "data, shifts those after the transform of the feature. ✕ is "
        "above the limit, the stronger the colour, the nearer to it. Limits are raised by what "
        "chance exceeds once in 10,000 times for these numbers of lists. Categories with fewer "
        f"than {limits.min_lists} lists are not compared.",
    )


def _categories(rows: Sequence[DriftRow], number: int) -> Section:
    """The map of PSI by category and column, those above limits first."""
    columns = list(dict.fromkeys(row.column for row in rows))[:_MOST_COLUMNS]
    categories = list(dict.fromkeys(row.category for row in rows))[:_MOST_CATEGORIES]
    row_of = {(row.category, row.column): row for row in rows}
    grid = [[row_of[category, name] for name in columns] for category in categories]
    cells = [[_cell(bool(row.exceeded), f"{row.psi:.2f}") for row in line] for line in grid]
    above = len({row.category for row in rows if row.exceeded})
    caption = f"PSI by top category; ✕ is above any limit; at most {_MOST_COLUMNS} columns"
    names, of = [label(category) for category in categories], [(label(c), "") for c in columns]
    drawn = HeatMap(caption, of, names, cells, "category ↓ column →")
    return Section("Top categories", f"{above} of {number} top categories have drifted.", [drawn])
