"""Build the content of a report from a data set and runs. Each run scores every list once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from rich.console import Console

from tfr_moe._compat import tf
from tfr_moe.analysis.attention import POSITIONS, attended, encoder_of, gather_maps
from tfr_moe.analysis.importance import feature_importance
from tfr_moe.analysis.item_groups import Grouping, Positions, grouping_of
from tfr_moe.analysis.learning_curves import learning_curves
from tfr_moe.analysis.list_examples import ShownList, extremes, fetch, show_list
from tfr_moe.baselines import BaselineRun
from tfr_moe.data.builder import ElwcDatasetBuilder
from tfr_moe.data.folder import DataFolder
from tfr_moe.evaluation.breakdown import (
    Categories,
    categories_of,
    per_category,
    training_sizes,
)
from tfr_moe.evaluation.evaluate import (
    compare_results,
    counted,
    evaluate_run,
    open_run,
    run_names,
    scorer_of,
    task_names,
)
from tfr_moe.evaluation.leaderboard import Leaderboard
from tfr_moe.evaluation.results import PerListResult, summarize
from tfr_moe.evaluation.scoring import inference_function
from tfr_moe.evaluation.significance import alignment, compare, seed_interval
from tfr_moe.metrics.naming import DEFAULT_NAMES
from tfr_moe.metrics.per_list import resolve
from tfr_moe.report.model import DataPart, Report, RunPart, SeedsPart
from tfr_moe.schema import FeatureSchema
from tfr_moe.scorers.gate_maps import GateReport, gate_reports
from tfr_moe.scorers.multitask import SCORES
from tfr_moe.training import LoadedRun
from tfr_moe.training.callbacks import read_history
from tfr_moe.training.collapsed_gates import collapsed_gates
from tfr_moe.utils.console import progress_bar

Results: TypeAlias = Mapping[str, PerListResult]
Opened: TypeAlias = "LoadedRun | BaselineRun"

NUM_POSITIONS = 20
"""Number of list positions in the attention map by position."""
_SAMPLE_BATCHES = 10  # from which the groups of the attention maps are derived


@dataclass(frozen=True)
class ReportOptions:
    """Options of a report.

    Attributes:
        split: the split to evaluate.
        metric: metric of the category tables and of single lists; None for the default metric.
        batch_size: lists per batch; does not change the numbers.
        num_lists: number of worst, best, lost and gained lists per run.
        attention_by: item features to group attention by, in addition to the position.
        attention_lists: number of lists, from the start of the split, in the attention maps.
        importance: number of validation lists for the importance of features; 0 leaves it out.
    """

    split: str = "test"
    metric: str | None = None
    batch_size: int = 128
    num_lists: int = 4
    attention_by: tuple[str, ...] = ()
    attention_lists: int = 2000
    importance: int = 0


@dataclass(frozen=True)
class EvaluatedRuns:
    """Loaded runs and their per-list metrics.

    Attributes:
        opened: the loaded run by name.
        results: the per-list metrics by name, all of the same lists.
        baseline: name of the run that the others are compared with; None for a single run.
        tasks: labels that all runs are evaluated on; empty for the primary label.
        metric: metric of the category tables and of single lists.
    """

    opened: Mapping[str, Opened]
    results: Results
    baseline: str | None
    tasks: tuple[str, ...]
    metric: str

    @property
    def task(self) -> str:
        """The task of `metric`; "" for models of one task."""
        return next((task for task in self.tasks if self.metric.startswith(f"{task}_")), "")


def build_report(
    data: str | Path,
    runs: Sequence[Path] | Mapping[str, Path],
    baseline: Path | None = None,
    options: ReportOptions | None = None,
    command: str = "",
    console: Console | None = None,
    leaderboard: Leaderboard | None = None,
) -> Report:
    """Evaluates runs on a data set and collects everything the report shows.

    Args:
        data: the data-set folder.
        runs: folders of finished runs of any model, or a name for each.
        baseline: the run that others are compared with; None for the first of several runs.
        options: see `ReportOptions`.
        command: command line to print at the end of the report.
        console: destination of progress output; None for stderr.
        leaderboard: of a comparison that the runs are the best of.

    Raises:
        UserError: if a run or the split does not exist, or the metric is unknown.
    """
    console, options = console or Console(stderr=True), options or ReportOptions()
    folder = DataFolder(data)
    folder.files(options.split)
    if isinstance(runs, Mapping):
        named = dict(runs)
    else:
        named = run_names([*([baseline] if baseline else []), *runs])
    opened = {name: open_run(run) for name, run in named.items()}
    tasks = next((names for names in map(task_names, opened.values()) if names), ())
    metrics, metric = _metrics(options.metric, tasks)
    results: dict[str, PerListResult] = {}
    with progress_bar(console, "evaluating") as move:
        count = counted(move, (folder.num_lists(options.split) or 0) * len(opened))
        for name, run in opened.items():
            watch = count(f"evaluating {name}")
            results[name] = evaluate_run(
                folder, run, options.split, metrics, options.batch_size, tasks, on_batch=watch
            )
    base = next(iter(opened)) if len(opened) > 1 else None
    evaluated = EvaluatedRuns(opened, results, base, tasks, metric)
    with console.status("counting categories"):
        sizes = training_sizes(folder)
        categories = categories_of(folder, options.split)
    run_parts = []
    with progress_bar(console, "analysing") as move:
        for number, name in enumerate(opened):
            move(number, len(opened), f"analysing {name}")
            run_parts.append(_run_part(folder, evaluated, name, options))
    if options.importance:
        run_parts = [_with_importance(folder, opened, part, options, console) for part in run_parts]
    by_sub = {} if categories is None else _by_sub_category(results, categories)
    return Report(
        command=command,
        made=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        split=options.split,
        metric=metric,
        data=_data_part(folder, sizes),
        evaluation=compare_results(results, base, category_metric=metric),
        seeds=_seeds(evaluated),
        sub_categories=per_category(by_sub, metric, base) if by_sub else [],
        runs=run_parts,
        leaderboard=leaderboard,
    )


def _metrics(wanted: str | None, tasks: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """The metrics to compute, and the name of the one of category tables and lists."""
    task = next((name for name in tasks if (wanted or "").startswith(f"{name}_")), "")
    bare = (wanted or DEFAULT_NAMES[0]).removeprefix(f"{task}_")
    resolve(bare)
    metrics = tuple(dict.fromkeys([*DEFAULT_NAMES, bare]))
    return metrics, f"{task or tasks[0]}_{bare}" if tasks else bare


def _data_part(folder: DataFolder, sizes: Mapping[str, Mapping[str, int]]) -> DataPart:
    manifest = folder.manifest
    kinds = [feature.kind for feature in folder.schema.features]
    tree = folder.schema.hierarchy
    splits = {
        name: {key: value for key, value in counts.items() if isinstance(value, int)}
        for name, counts in manifest.get("splits", {}).items()
    }
    return DataPart(
        path=str(folder.path),
        source=manifest.get("source"),
        splits=splits,
        features={kind: kinds.count(kind) for kind in dict.fromkeys(kinds)},
        labels=folder.schema.labels,
        hierarchy=None if tree is None else (tree.parent, tree.child),
        categories=(len(sizes["top"]), len(sizes["sub"])),
        notes=folder.notes,
    )


def _by_sub_category(results: Results, categories: Categories) -> Results:
    return {m: dataclasses.replace(r, categories=categories.sub) for m, r in results.items()}


def _seeds(evaluated: EvaluatedRuns) -> list[SeedsPart]:
    """Groups of runs that differ in their seed only, the baseline's first; empty if all differ."""
    groups: dict[str, list[str]] = {}
    for name, run in evaluated.opened.items():
        settings = {**run.config.model_dump(mode="json"), "seed": None}
        groups.setdefault(repr(settings), []).append(name)
    if all(len(names) < 2 for names in groups.values()):
        return []
    first, *_ = groups.values()
    base = [evaluated.results[name] for name in first]
    parts = []
    for names in groups.values():
        results = [evaluated.results[name] for name in names]
        metrics = list(results[0].values)
        means = [summarize(result) for result in results]
        intervals = {m: seed_interval([summary[m].mean for summary in means]) for m in metrics}
        differences = {m: compare(results, base, m) for m in metrics if names is not first}
        parts.append(SeedsPart(names, intervals, differences))
    return parts


def _run_part(
    folder: DataFolder,
    evaluated: EvaluatedRuns,
    name: str,
    options: ReportOptions,
) -> RunPart:
    run = evaluated.opened[name]
    config, metrics = run.config, run.metrics
    history = read_history(run.path)
    builder = ElwcDatasetBuilder(folder, options.batch_size, tasks=evaluated.tasks)
    dataset = builder.build_evaluation_dataset(options.split)
    gates: dict[str, GateReport] = {}
    attention: dict[str, Any] = {}
    attention_lists = 0
    if isinstance(run, LoadedRun):
        gates = gate_reports(run.model, dataset, run.schema)
        batches = -(-options.attention_lists // options.batch_size)
        attention_lists, attention = attention_maps(
            run.model, dataset.take(batches), run.schema, options.attention_by
        )
    command = f"tfr-moe train --data {metrics.get('data', folder.path)}"
    return RunPart(
        name=name,
        path=str(run.path),
        model=config.model,
        settings={k: v for k, v in config.changed().items() if k != "model"},
        parameters=metrics.get("parameters"),
        best_epoch=int(metrics.get("best_epoch") or 0),
        epochs=int(metrics.get("epochs") or 0),
        seconds=float(metrics.get("seconds") or np.nan),
        versions=dict(metrics.get("versions", {})),
        command=f"{command} --config {run.path}/config.yaml --out RUN",
        curves=learning_curves(history, metrics, config) if history else None,
        gates=gates,
        warnings=collapsed_gates(gates, config),
        attention=attention,
        attention_lists=attention_lists,
        lists=lists_of(evaluated, name, dataset, options.num_lists),
    )


def _with_importance(
    folder: DataFolder,
    opened: Mapping[str, Opened],
    part: RunPart,
    options: ReportOptions,
    console: Console,
) -> RunPart:
    with progress_bar(console, f"importance of features for {part.name}") as move:
        found = feature_importance(
            opened[part.name],
            folder,
            max_lists=options.importance,
            batch_size=options.batch_size,
            move=move,
        )
    return dataclasses.replace(part, importance=found)


def attention_maps(
    model: tf.keras.Model,
    dataset: tf.data.Dataset,
    schema: FeatureSchema,
    by: Sequence[str] = (),
) -> tuple[int, dict[str, Any]]:
    """Computes attention maps by position and by item features.

    Args:
        model: model of a run.
        dataset: batches of whole lists.
        schema: schema of the data set.
        by: item features; the position is always included.

    Returns:
        The number of lists, and per grouping a map as of `AttentionMap.as_json`. `(0, {})` for a
        model without attention.

    Raises:
        UserError: if `by` names a feature that is not a categorical or numeric item feature.
    """
    if encoder_of(model) is None:
        return 0, {}
    groupings: dict[str, Grouping] = {POSITIONS: Positions(NUM_POSITIONS)}
    if by:
        sample = [
            {name: value.numpy() for name, value in features.items()}
            for features, *_ in islice(dataset, _SAMPLE_BATCHES)
        ]
        groupings |= {name: grouping_of(schema, name, sample) for name in by}
    lists, maps = gather_maps(attended(model, dataset), groupings)
    return lists, {name: attention_map.as_json() for name, attention_map in maps.items()}


def lists_of(
    evaluated: EvaluatedRuns, name: str, dataset: tf.data.Dataset, count: int
) -> dict[str, list[ShownList]]:
    """Selects the worst and best lists of a run, and those that differ most from the baseline.

    Args:
        evaluated: all runs.
        name: name of the run.
        dataset: the lists in the order of `evaluated.results`.
        count: maximum number of lists of each kind.

    Returns:
        See `RunPart.lists`.
    """
    result = evaluated.results[name]
    values = result.metric(evaluated.metric)
    worst, best = extremes(values, result.num_items, count)
    lost: list[int] = []
    gained: list[int] = []
    if evaluated.baseline is not None and name != evaluated.baseline:
        base = evaluated.results[evaluated.baseline]
        gaps = values - base.metric(evaluated.metric)[alignment(result, base)]
        lost, gained = extremes(gaps, result.num_items, count)
        lost, gained = [i for i in lost if gaps[i] < 0], [i for i in gained if gaps[i] > 0]
    score = _scorer(evaluated, name, dataset.element_spec[0])
    schema = evaluated.opened[name].schema
    examples: dict[int, ShownList] = {
        index: show_list(element, score, schema, evaluated.task, _values(evaluated, result, index))
        for index, element in fetch(dataset, [*worst, *best, *lost, *gained])
    }
    kinds = {"worst": worst, "best": best, "lost": lost, "gained": gained}
    return {kind: [examples[i] for i in indices] for kind, indices in kinds.items()}


def _scorer(evaluated: EvaluatedRuns, name: str, features_spec: Any) -> Callable[[Any], Any]:
    run = evaluated.opened[name]
    infer = inference_function(scorer_of(run), features_spec)
    output = f"{SCORES}_{evaluated.task}" if task_names(run) else None
    return lambda features: infer(features) if output is None else infer(features)[output]


def _values(evaluated: EvaluatedRuns, result: PerListResult, index: int) -> dict[str, float | None]:
    """The metric of every run on one list, None where it is undefined."""
    values: dict[str, float | None] = {}
    for name, other in evaluated.results.items():
        value = float(other.metric(evaluated.metric)[alignment(result, other)[index]])
        values[name] = None if np.isnan(value) else value
    return values
