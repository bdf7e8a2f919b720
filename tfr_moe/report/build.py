"""Build the content of a report from a data set and runs. Each run scores every list once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rich.console import Console

from tfr_moe.analysis.attention import grouping_feature
from tfr_moe.analysis.calibration import CalibrationCounter
from tfr_moe.analysis.importance import Importance, feature_importance
from tfr_moe.analysis.list_examples import ShownList, example_lists
from tfr_moe.baselines import BaselineRun
from tfr_moe.data.builder import ElwcDatasetBuilder
from tfr_moe.data.folder import DataFolder
from tfr_moe.evaluation.breakdown import CategoryRow, per_category
from tfr_moe.evaluation.evaluate import (
    EvaluationReport,
    check_schema,
    compare_results,
    counted,
    evaluate_run,
    open_run,
    run_names,
    split_metric,
)
from tfr_moe.evaluation.leaderboard import Leaderboard, make_leaderboard
from tfr_moe.evaluation.results import PerListResult
from tfr_moe.evaluation.scoring import of_task
from tfr_moe.metrics.naming import DEFAULT_NAMES
from tfr_moe.report import findings
from tfr_moe.report.html import render
from tfr_moe.report.run_part import BATCH_SIZE, RunPart, run_part
from tfr_moe.training import LoadedRun
from tfr_moe.utils.console import progress_bar


@dataclass(frozen=True)
class Report:
    """Content of a report on one or more runs.

    Attributes:
        metric: metric of the category tables and of example lists.
        data: the data set: its `path`, the `source` that it was built from, the `period` of the
            evaluated lists, counts by split, `features` by kind, `labels`, names of the columns of
            the `hierarchy`, `notes` such as negative sampling, and `warnings`; None if not known.
        runs: the runs, the baseline first.
        leaderboard: of a comparison, or of the runs as given, those that differ in their seed only
            aggregated.
        subject: the run that categories, gate and lists are shown of: the best one but the
            baseline.
        lists: of the subject, see `example_lists`.
        importance: of the features for the subject; None if not requested.
        list_counts: number of lists that the subject ranks `better` and `worse` than the baseline,
            and `equal`; empty without a baseline.
    """

    command: str
    made: str
    split: str
    metric: str
    data: dict[str, Any]
    evaluation: EvaluationReport
    sub_categories: list[CategoryRow]
    runs: list[RunPart]
    leaderboard: Leaderboard
    subject: str
    lists: dict[str, list[ShownList]]
    importance: Importance | None
    list_counts: dict[str, int]

    @property
    def of_subject(self) -> RunPart:
        """The part of `subject`."""
        return next(run for run in self.runs if run.name == self.subject)


def build_report(
    data: str | Path,
    runs: Sequence[Path] | Mapping[str, Path],
    baseline: Path | None = None,
    *,
    split: str = "test",
    metric: str | None = None,
    attention_by: Sequence[str] = (),
    importance: int = 0,
    command: str = "",
    console: Console | None = None,
    leaderboard: Leaderboard | None = None,
) -> Report:
    """Evaluates runs on a data set and collects everything the report shows.

    Args:
        runs: folders of finished runs of any model, or a name for each.
        baseline: the run that others are compared with; None for the first of several runs.
        metric: metric of the category tables and of single lists; None for the default metric.
        attention_by: item features to group attention by, in addition to the position.
        importance: number of validation lists for the importance of features; 0 leaves it out.
        leaderboard: of a comparison whose best runs these are.
    """
    console = console or Console(stderr=True)
    folder = DataFolder(data)
    named = runs if isinstance(runs, Mapping) else run_names(runs, baseline)
    opened = {name: open_run(run) for name, run in named.items()}
    for run in opened.values():
        check_schema(run, folder)
    for name in attention_by:
        grouping_feature(folder.schema, name)
    tasks = next((run.task_names for run in opened.values() if run.tasks), ())
    task, bare = split_metric(metric or DEFAULT_NAMES[0], tasks)
    metric = f"{task}_{bare}" if task else bare
    metrics = tuple(dict.fromkeys([*DEFAULT_NAMES, bare]))
    builder = ElwcDatasetBuilder(folder, BATCH_SIZE, tasks=tasks)
    dataset = builder.build_evaluation_dataset(split)
    results: dict[str, PerListResult] = {}
    parts = []
    with progress_bar(console, "evaluating") as move:
        count = counted(move, (folder.num_lists(split) or 0) * len(opened))
        for name, run in opened.items():
            counter = CalibrationCounter(task)
            results[name] = evaluate_run(
                folder,
                run,
                split,
                metrics,
                tasks=tasks,
                callbacks=[count(f"evaluating {name}"), counter],
                dataset=dataset,
            )
            parts.append(run_part(name, run, of_task(run, task), dataset, attention_by, counter))
    base = next(iter(opened)) if len(opened) > 1 else None
    board = leaderboard or leaderboard_of(opened, results, metric, split)
    subject = _subject(board, list(opened), base)
    score = of_task(opened[subject], task)
    importances = None
    if importance:
        with progress_bar(console, f"importance of features for {subject}") as move:
            importances = feature_importance(
                opened[subject], folder, max_lists=importance, move=move
            )
    return Report(
        command=command,
        made=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        split=split,
        metric=metric,
        data=_data_part(folder, split),
        evaluation=compare_results(results, base, category_metric=metric),
        sub_categories=per_category(results, metric, base, level="sub"),
        runs=parts,
        leaderboard=board,
        subject=subject,
        lists=example_lists(dataset, results, metric, subject, base, score, folder.schema, task),
        importance=importances,
        list_counts={} if base is None else _list_counts(results, metric, subject, base),
    )


def render_report(report: Report, svg: Path | None = None) -> str:
    """Renders a report on runs; see `tfr_moe.report.html.render` for `svg`."""
    return render("report.html", svg, report=report, findings=findings)


def _list_counts(
    results: Mapping[str, PerListResult], metric: str, subject: str, baseline: str
) -> dict[str, int]:
    ours, theirs = (results[name].metric(metric) for name in (subject, baseline))
    return {
        "better": int((ours > theirs).sum()),
        "equal": int((ours == theirs).sum()),
        "worse": int((ours < theirs).sum()),
    }


def _subject(board: Leaderboard, runs: Sequence[str], baseline: str | None) -> str:
    """The best run that is not the baseline, or the only one."""
    ranked = [e.model if e.model in runs else e.best_run for e in board.entries]
    return next((run for run in [*ranked, *runs] if run != baseline), ranked[0])


def _data_part(folder: DataFolder, split: str) -> dict[str, Any]:
    manifest = folder.manifest
    kinds = [feature.kind for feature in folder.schema.features]
    tree = folder.schema.hierarchy
    splits = {
        name: {key: value for key, value in counts.items() if isinstance(value, int)}
        for name, counts in manifest.get("splits", {}).items()
    }
    return {
        "path": str(folder.path),
        "source": manifest.get("source"),
        "period": _period(manifest, split),
        "splits": splits,
        "features": {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)},
        "labels": folder.schema.labels,
        "hierarchy": None if tree is None else (tree.parent, tree.child),
        "notes": folder.notes,
        "warnings": list(manifest.get("warnings", ())),
    }


def _period(manifest: Mapping[str, Any], split: str) -> str | None:
    """The time of a split's lists, of a data set that is split by time."""
    by_time = manifest.get("split") or {}
    dates = {
        name: datetime.fromtimestamp(bound, timezone.utc).date().isoformat()
        for name, bound in (by_time.get("bounds") or {}).items()
        if bound is not None
    }
    if by_time.get("by") != "time" or split == "train" or split not in dates:
        return None
    until = f" to {dates['test']}" if split == "validation" and "test" in dates else " on"
    return f"from {dates[split]}{until}"


def leaderboard_of(
    opened: Mapping[str, LoadedRun | BaselineRun],
    results: Mapping[str, PerListResult],
    metric: str,
    split: str,
) -> Leaderboard:
    """The leaderboard of runs as given: those that differ in their seed only are one model."""
    groups: dict[str, list[str]] = {}
    for name, run in opened.items():
        settings = {**run.config.model_dump(mode="json"), "seed": None}
        groups.setdefault(repr(settings), []).append(name)
    named = {
        runs[0] if len(runs) == 1 else f"{runs[0]} and {len(runs) - 1} more": runs
        for runs in groups.values()
    }
    by_model = {model: [results[run] for run in runs] for model, runs in named.items()}
    return make_leaderboard(
        metric,
        by_model,
        by_model,
        {m: {run: opened[run].metrics for run in runs} for m, runs in named.items()},
        dict.fromkeys(named),
        split,
        next(iter(named)) if len(named) > 1 else None,
    )
