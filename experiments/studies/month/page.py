"""Tables and pictures of the simulated month."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from experiments.common.study import StudyContext
from experiments.studies.month.log import WEEK
from experiments.studies.month.results import PAIRS
from experiments.studies.month.settings import METRICS, WAYS
from tfr_moe.report import Chart, Line, Section, chart, render_sections, write_figure, write_page

_TITLES = {"ndcg_10": "NDCG@10", "session_auc": "session AUC"}
_NAMES = {"once": "trained once", "scratch": "from scratch", "warm": "warm start"}
Rows = list[list[str]]


def _cell(interval: Mapping[str, float], sign: bool = False) -> str:
    half = (interval["high"] - interval["low"]) / 2
    return f"{interval['mean']:{'+' if sign else ''}.4f} ± {half:.4f}"


def _gate(day: Mapping[str, Any], way: str) -> str:
    """What the gate decided on the run of a day."""
    if day["drifted"]:
        return f"stopped: {', '.join(day['drifted'])}"
    decision = day["published"].get(way)
    if decision is None or decision["published"]:
        return "" if decision is None else "published"
    return f"held: {', '.join(failed['check'] for failed in decision['failed'])}"


def weekly_rows(content: Mapping[str, Any], metric: str) -> Rows:
    """Means and differences by week, with a heading row."""
    differences = [f"{a} - {b}" for a, b in PAIRS]
    rows = [["days", *WAYS, *differences]]
    total = len(content["days"])
    spans = [(at + 1, min(at + WEEK, total)) for at in range(0, total, WEEK)]
    parts = zip([*spans, (1, total)], [*content["weeks"], content["month"]], strict=True)
    for (first, last), week in parts:
        name = f"{first} to {last}"
        cells = [_cell(week[metric][way]) for way in WAYS]
        rows.append([name, *cells, *(_cell(week[metric][d], True) for d in differences)])
    return rows


def daily_rows(content: Mapping[str, Any]) -> Rows:
    """NDCG by day and what happened to the day and its runs, with a heading row."""
    rows = [["day", *WAYS, "warm - scratch", "gate, scratch", "gate, warm"]]
    for day in content["days"]:
        cells = [_cell(day["ndcg_10"][way]) for way in WAYS]
        gates = [_gate(day, way) for way in ("scratch", "warm")]
        note = " (new sub-category)" if day["opens"] else ""
        gap = _cell(day["ndcg_10"]["warm - scratch"], True)
        rows.append([f"{day['day']}{note}", *cells, gap, *gates])
    return rows


def broken_rows(content: Mapping[str, Any]) -> Rows:
    """What stops the broken day, with a heading row."""
    broken = content["broken"]
    (day,) = [day for day in content["days"] if day["broken"]]
    stopped = "stopped" if day["drifted"] else "accepted"
    rows = [["gate", "outcome", "reason"], ["drift", stopped, ", ".join(day["drifted"])]]
    names = {"with_drift": "publish --reference", "quality_alone": "publish"}
    for key, name in names.items():
        outcome = f"published {broken[key]['published']} of {broken['seeds']}"
        reasons = [f"{check}: {text}" for check, text in broken[key]["failed"].items()]
        rows.append([name, outcome, "; ".join(reasons)])
    for kind, name in {"cents": "prices in cents", "corrected": "right prices"}.items():
        scores = [f"{of} {broken[kind][of]:.4f}" for of in ("live", "candidate")]
        rows.append([f"NDCG@10, {name}", *scores])
    return rows


def table(title: str, rows: Rows) -> Table:
    """A table for the console."""
    made = Table(title=title)
    for name in rows[0]:
        made.add_column(name)
    for row in rows[1:]:
        made.add_row(*row)
    return made


def markdown(rows: Rows) -> str:
    """A table as Markdown.

    Example:
        >>> print(markdown([["a", "b"], ["1", "2"]]))
        | a | b |
        |---|---|
        | 1 | 2 |
    """
    marked = [rows[0], None, *rows[1:]]
    return "\n".join(
        "|---" * len(rows[0]) + "|" if row is None else f"| {' | '.join(row)} |" for row in marked
    )


def named_tables(content: Mapping[str, Any]) -> Iterator[tuple[str, Rows]]:
    """All tables with their titles."""
    for metric in METRICS:
        yield f"{_TITLES[metric]} by week", weekly_rows(content, metric)
    yield "The broken day", broken_rows(content)
    seconds = content["seconds"]
    rows = [[way, f"{seconds[way]['a_day']:.1f}", f"{seconds[way]['month']:.0f}"] for way in WAYS]
    yield "Seconds of training", [["way", "a day", "month"], *rows]
    yield "NDCG@10 by day", daily_rows(content)


def _line(days: Sequence[Mapping[str, Any]], metric: str, name: str, key: str) -> Line:
    mean, low, high = ([day[metric][key][part] for day in days] for part in ("mean", "low", "high"))
    return Line(name, [day["day"] for day in days], mean, low, high, "curve")


def _by_day(lines: Sequence[Line], finding: str, title: str, broken: int) -> Chart:
    """Lines over the days, with a dotted line at the broken one."""
    rule = [(broken, -math.inf), (broken, math.inf)]
    return chart(lines, finding, "day", title, rule=rule, integer=True)


def write_results(content: Mapping[str, Any], context: StudyContext) -> None:
    """Writes the page, its charts as files, and the tables as Markdown."""
    days = content["days"]
    (broken,) = [day["day"] for day in days if day["broken"]]
    sections = []
    for metric in METRICS:
        title, month = _TITLES[metric], content["month"][metric]
        means = [_line(days, metric, _NAMES[way], way) for way in WAYS]
        gains = [
            _line(days, metric, f"{_NAMES[a]} minus {_NAMES[b]}", f"{a} - {b}")
            for a, b in PAIRS[:2]
        ]
        finding = ", ".join(f"{_NAMES[way]} {_cell(month[way])}" for way in WAYS)
        figures = [
            _by_day(means, f"{title} of the day after; {finding}", title, broken),
            _by_day(gains, f"{title}, gain over trained once", f"difference of {title}", broken),
        ]
        sections.append(Section(title, f"Over the month: {finding}.", figures))
    gains = content["month"]["ndcg_10"]
    page = render_sections(
        title="What is training every day worth?",
        lead=f"{len(days)} generated daily logs; day {broken} has prices in cents (dotted line)",
        headline=f"Warm start minus trained once: {_cell(gains['warm - once'], True)}",
        sentences=[f"{a} minus {b}: NDCG@10 {_cell(gains[f'{a} - {b}'], True)}." for a, b in PAIRS],
        sections=sections,
    )
    write_page(page, context.out / "month.html")
    write_figure(sections[0].figures, context.out / "month.svg")
    parts = [f"## {title}\n\n{markdown(rows)}\n" for title, rows in named_tables(content)]
    write_page("\n".join(parts), context.out / "results.md")
