"""The sentences of a report: what was found, with the numbers it follows from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tfr_moe.evaluation.breakdown import CategoryRow
from tfr_moe.evaluation.evaluate import split_metric
from tfr_moe.evaluation.leaderboard import Leaderboard, difference_text
from tfr_moe.evaluation.significance import seed_interval
from tfr_moe.report.figures import HeatMap
from tfr_moe.report.gate_view import gate_change
from tfr_moe.report.run_part import RunPart
from tfr_moe.scorers.gate_maps import GateReport
from tfr_moe.utils.formats import command, count, percent

if TYPE_CHECKING:
    from tfr_moe.report.build import Report

_ALIKE = 0.95  # cosine of gates that differ in nothing that matters
_LONG = 20  # rows
_CALIBRATED = 0.2  # relative error of the mean prediction


class NextStep(NamedTuple):
    """Something to do next: a sentence, a command if there is one, and `bad` for a problem."""

    text: str
    command: str = ""
    kind: str = ""


def title(report: Report) -> str:
    """The question that the page answers."""
    data, number = Path(report.data["path"]).resolve().name, len(report.leaderboard.entries)
    if number == 1:
        return f"How well does {report.leaderboard.ship} rank {data}?"
    return f"Which of {number} models ranks {data} best?"


def about_data(report: Report) -> list[str]:
    """What lists the numbers are of."""
    summary = report.evaluation.models[report.subject][report.metric]
    data = report.data
    labels = f"label{'s' if len(data['labels']) > 1 else ''} {', '.join(data['labels'])}"
    negatives = data["notes"].get("negatives")
    return [
        f"{count(report.evaluation.lists)} {report.split} lists of {data['path']}"
        + (f", {data['period']}" if data["period"] else ""),
        f"{count(summary.evaluated)} evaluated, {count(summary.skipped)} skipped",
        labels,
        f"negatives {negatives}" if negatives else "no sampled negatives recorded",
    ]


def sentences(report: Report) -> str:
    """The first two sentences of the verdict: what won and how sure it is, and what is level."""
    board = report.leaderboard
    first, *rest = board.verdict.splitlines()
    return " ".join([first.removeprefix(f"{board.headline}. "), *rest[:1]])


def by_task(report: Report) -> str:
    """What the other labels say; empty with one label."""
    _, bare = split_metric(report.metric, report.data["labels"])
    named = [f"{label}_{bare}" for label in report.data["labels"]]
    others = [m for m in named if m in report.evaluation.metrics and m != report.metric]
    against = report.evaluation.comparisons.get(report.subject, {})
    means = report.evaluation.models[report.subject]
    parts = [
        f"{m} {means[m].mean:.4f}" + (f", {difference_text(against[m])}" if against else "")
        for m in others
    ]
    return f"{report.subject} by the other labels: {'; '.join(parts)}." if parts else ""


def next_steps(report: Report) -> list[NextStep]:
    """What to do with the result, the most important first."""
    board, shipped = report.leaderboard, run_of(report, report.leaderboard.ship)
    steps = [
        NextStep(f"{report.subject}: {text}.", kind="bad") for text in report.of_subject.warnings
    ]
    compare = command("compare", "--data", report.data["path"], "--out", "comparison")
    others = sum(len(run.warnings) for run in report.runs) - len(steps)
    if others:
        text = "1 warning" if others == 1 else f"{others} warnings"
        steps.append(NextStep(f"Other runs have {text}: see Why.", kind="bad"))
    best, several = board.entries[0], len(board.entries) > 1
    if several and len(best.runs) == 1:
        more = f"{compare} --budget 2h"
        text = "Train several seeds: another run of the same model may differ by more."
        steps.append(NextStep(text, f"{shipped.command} --set seed=2" if board.baseline else more))
    if several:
        export = command("export", "--run", shipped.path, "--out", f"models/{shipped.model}")
        advice = board.verdict.splitlines()[-1]
        if shipped.warnings:
            advice = f"Retrain with these changes and compare again; until then, s{advice[1:]}"
        steps.append(NextStep(advice, export))
    else:
        text = "Compare it with a tree model and a single tower."
        steps.append(NextStep(text, compare))
    if "negatives" in report.data["notes"] or report.data["warnings"]:
        steps.append(NextStep("Confirm it on shown lists: see the caveats of the data."))
    elif several:
        steps.append(NextStep("Confirm it in an A/B test: logged lists favor the logging model."))
    return steps


def run_of(report: Report, model: str) -> RunPart:
    """The part of the run that is shown of a model of the leaderboard."""
    entry = next(entry for entry in report.leaderboard.entries if entry.model == model)
    return next(run for run in report.runs if run.name in (model, entry.best_run))


def widest(board: Leaderboard) -> float:
    """The scale of the intervals of differences from the references."""
    comparisons = [
        entry.differences.get(name) for entry in board.entries for name in board.references
    ]
    ends = [abs(end) for c in comparisons if c is not None for end in (c.low, c.high)]
    return max((end for end in ends if not math.isnan(end)), default=0.0)


def widest_category(rows: Sequence[CategoryRow], model: str) -> float:
    """The scale of the intervals of a table; of a long one, the widest tenth is cut."""
    ends = [max(map(abs, row.intervals[model])) for row in rows if model in row.intervals]
    known = [end for end in ends if not math.isnan(end)]
    return float(np.quantile(known, 0.9 if len(known) > _LONG else 1)) if known else 0.0


def where(report: Report) -> str:
    """In which categories the subject differs from the baseline."""
    rows, name = report.evaluation.categories, report.subject
    baseline, metric = report.evaluation.baseline, report.metric
    if not rows:
        return "The schema has no hierarchy, so there are no categories to compare."
    if baseline is None:
        known = [row for row in rows if not math.isnan(row.means[name])] or rows[:1]
        worst, best = (f(known, key=lambda row: row.means[name]) for f in (min, max))
        return (
            f"{metric} is lowest in {worst.title} ({worst.means[name]:.4f}) and highest in "
            f"{best.title} ({best.means[name]:.4f})."
        )
    sure = [row for row in rows if name in row.significant]
    better = [row.title for row in sure if row.differences[name] > 0]
    worse = [row.title for row in sure if row.differences[name] < 0]
    if not sure:
        return (
            f"{name} differs significantly from {baseline} in none of {len(rows)} top categories."
        )
    return (
        f"{name} is significantly better than {baseline} in {_named(better)} and significantly "
        f"worse in {_named(worse)}, of {len(rows)} top categories."
    )


def _named(names: Sequence[str], most: int = 4) -> str:
    if not names:
        return "none"
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{len(names)} ({', '.join(names[:most])}{more})"


def why(run: RunPart) -> str:
    """What the gates of a run do, in words."""
    if not run.gates:
        if run.model == "star":
            return f"{run.name} has no gate: each top category has separate weights."
        return f"{run.name} has no gate: all categories share its parameters."
    if run.warnings:
        return "A gate has a problem: see the warning."
    return " ".join(
        _about_gate(f"The gate of {task}" if task else "The gate", gate)
        for task, gate in run.gates.items()
    )


def _about_gate(gate: str, report: GateReport) -> str:
    busiest = max(range(report.num_experts), key=lambda i: report.utilisation[i])
    share = f"the busiest, {busiest}, has {percent(report.utilisation[busiest])} of the weight"
    used = f"{gate} uses all {report.num_experts} experts, {report.top_k} for a list; {share}."
    within, between = report.within_category_similarity, report.between_category_similarity
    if within is None or between is None:
        return used
    cosines = f"(gate cosine {within:.2f} within a top category, {between:.2f} between them)"
    if between > _ALIKE:
        return f"{used} It hardly distinguishes categories {cosines}."
    if within - between > 1 - _ALIKE:
        return f"{used} It follows the category tree {cosines}."
    return f"{used} It distinguishes categories, but does not follow the tree {cosines}."


def gate_changes(report: Report) -> list[tuple[str, list[HeatMap]]]:
    """What differs between the gates of the subject and those of the first run with like gates."""
    subject = report.of_subject
    for run in report.runs:
        tasks = [task for task in subject.gates if run is not subject and task in run.gates]
        changes = []
        for task in tasks:
            names = [f"{r.name}, {task}" if task else r.name for r in (subject, run)]
            changes.append(gate_change(subject.gates[task], run.gates[task], names))
        if any(changes):
            return [change for change in changes if change]
    return []


def trust(report: Report) -> str:
    """How many lists and seeds the numbers are of, and what else limits them."""
    summary = report.evaluation.models[report.subject][report.metric]
    best = report.leaderboard.entries[0]
    lists = f"{count(summary.evaluated)} of {count(report.evaluation.lists)} lists are evaluated"
    seeds = "one seed of each model: seed variance is not included in the intervals"
    if len(best.by_run) > 1:
        deviation = seed_interval(best.by_run).standard_deviation
        seeds = (
            f"{len(best.by_run)} seeds of {best.model} with a standard deviation of {deviation:.4f}"
        )
    number = len(report.data["warnings"]) + ("negatives" in report.data["notes"])
    caveats = f"{number} caveat{'s' if number > 1 else ''} of the data" if number else "no caveat"
    return f"{lists}; {seeds}; {caveats}."


def calibration(run: RunPart) -> str:
    """Whether the scores can be read as probabilities."""
    summary = run.calibration
    if summary is None:
        return f"The scores of {run.name} are not probabilities: its loss compares items of a list."
    off = summary.mean_predicted / summary.mean_observed - 1 if summary.mean_observed else math.inf
    said = (
        "as"
        if abs(off) < _CALIBRATED
        else f"{percent(abs(off))} {'more' if off > 0 else 'less'} than"
    )
    return (
        f"{run.name} predicts {summary.mean_predicted:.4f} on average, {said} observed "
        f"({summary.mean_observed:.4f}); by bins it is off by {summary.error:.4f}. The order of a "
        "list does not depend on it."
    )


def lists(report: Report) -> str:
    """On how many lists the subject is better than the baseline."""
    if not report.list_counts:
        return f"The lists that {report.subject} ranks worst and best by {report.metric}."
    numbers = {name: count(value) for name, value in report.list_counts.items()}
    return (
        f"{report.subject} ranks {numbers['better']} lists better than "
        f"{report.evaluation.baseline}, {numbers['worse']} worse and {numbers['equal']} equally."
    )


def metrics(report: Report) -> str:
    """By how many metrics the subject differs from the baseline."""
    comparisons = report.evaluation.comparisons.get(report.subject)
    if not comparisons:
        return f"{len(report.evaluation.metrics)} metrics."
    sure = [c for c in comparisons.values() if c.excludes_zero]
    better = sum(c.difference > 0 for c in sure)
    return (
        f"Of {len(comparisons)} metrics {report.subject} is significantly better than "
        f"{report.evaluation.baseline} by {better} and worse by {len(sure) - better}."
    )


def method(report: Report) -> str:
    """What was trained and evaluated."""
    models = len(report.leaderboard.entries)
    runs = sum(len(entry.runs) for entry in report.leaderboard.entries)
    selected = "by validation lists" if report.leaderboard.baseline is None else "as given"
    return (
        f"{runs} training run{'s' if runs > 1 else ''} of {models} "
        f"model{'s' if models > 1 else ''}, selected {selected}, evaluated "
        f"on {count(report.evaluation.lists)} {report.split} lists."
    )


def training(run: RunPart) -> str:
    """How a run trained."""
    best, of = run.metrics["best_epoch"], run.metrics["epochs"]
    if not run.curves:
        return f"{run.model}, best iteration {best} of {of}, not by epochs."
    return f"{run.model}, best after epoch {best} of {of}."
