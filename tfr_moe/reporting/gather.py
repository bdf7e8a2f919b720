"""Runs and data -> the content of a report; every list is scored once by each run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from rich.console import Console

from tfr_moe.analysis.calibration import Calibration, CalibrationReport
from tfr_moe.analysis.curves import learning_curves
from tfr_moe.analysis.gates import GateReport, gate_reports
from tfr_moe.analysis.sizes import LEVELS, Categories, categories_of, gain_by_size, training_sizes
from tfr_moe.comparison import judge, open_run, run_names, tasks_of
from tfr_moe.config import BASELINE_NAMES, make_config
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.evaluation.batches import ListBatch
from tfr_moe.evaluation.categories import per_category
from tfr_moe.evaluation.per_list import resolve
from tfr_moe.evaluation.report import report
from tfr_moe.evaluation.result import PerListResult, summarize
from tfr_moe.evaluation.significance import compare_runs, seed_interval
from tfr_moe.folders import read_json
from tfr_moe.metric_names import DEFAULT_NAMES
from tfr_moe.reporting.content import DataPart, Report, RunPart, SeedsPart
from tfr_moe.reporting.looking import Judged, attention_maps, lists_of
from tfr_moe.training import LoadedRun
from tfr_moe.training.ledger import HISTORY_FILE

Results: TypeAlias = Mapping[str, PerListResult]
POINTWISE = "sigmoid_cross_entropy"
"""The loss under which scores are logits of probabilities."""


@dataclasses.dataclass(frozen=True)
class Options:
    """What a report is asked for.

    Attributes:
        split: the split that is judged.
        metric: the metric of categories and lists; None for the first.
        batch_size: lists per batch; does not change the numbers.
        num_lists: so many worst lists, best lists and so on are shown for each run.
        attention_by: features of the items by which attention is grouped, beside positions.
        attention_lists: so many lists, the first ones, are looked at for attention.
        num_buckets: of categories by training size.
    """

    split: str = "test"
    metric: str | None = None
    batch_size: int = 128
    num_lists: int = 4
    attention_by: tuple[str, ...] = ()
    attention_lists: int = 2000
    num_buckets: int = 5


def gather(
    data: str | Path,
    runs: Sequence[Path],
    baseline: Path | None = None,
    options: Options | None = None,
    command: str = "",
    console: Console | None = None,
) -> Report:
    """Looks at runs and data.

    Args:
        data: the data-set folder.
        runs: folders of finished runs of any model.
        baseline: the run that others are compared with; None for the first where there are several.
        options: see `Options`.
        command: the command that asked, for the record.
        console: where progress goes; None for stderr.

    Raises:
        UserError: for runs, names or data that don't fit.
    """
    console, options = console or Console(stderr=True), options or Options()
    folder = DataFolder(data)
    folder.files(options.split)
    named = run_names([*([baseline] if baseline else []), *runs])
    opened = {name: open_run(run) for name, run in named.items()}
    tasks = next((own for own in map(tasks_of, opened.values()) if own), ())
    metrics, metric = _metrics(options.metric, tasks)
    results: dict[str, PerListResult] = {}
    calibrations: dict[str, dict[str, CalibrationReport]] = {}
    for name, loaded in opened.items():
        gathered = {task: Calibration() for task in tasks or ("",)}
        with console.status(f"evaluating {name}"):
            results[name] = judge(
                folder,
                loaded,
                options.split,
                metrics,
                options.batch_size,
                tasks,
                watch=_adding(gathered),
            )
        calibrations[name] = {task: found.report() for task, found in gathered.items()}
    base = next(iter(opened)) if len(opened) > 1 else None
    judged = Judged(opened, results, base, tasks, metric)
    with console.status("counting categories"):
        sizes = training_sizes(folder)
        categories = categories_of(folder, options.split)
    parts = []
    for name in opened:
        with console.status(f"looking at {name}"):
            parts.append(_run_part(folder, judged, name, calibrations[name], options))
    by_sub = _with_categories(results, categories, "sub")
    return Report(
        command=command,
        made=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        split=options.split,
        metric=metric,
        data=_data_part(folder, sizes),
        evaluation=report(results, base, category_metric=metric),
        seeds=_seeds(judged),
        sub_categories=per_category(by_sub, metric, base) if by_sub else [],
        sizes=_sizes(judged, categories, sizes, options.num_buckets),
        runs=parts,
    )


def _metrics(wanted: str | None, tasks: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """The metrics to compute, and the name of the one of categories and lists."""
    task = next((own for own in tasks if (wanted or "").startswith(f"{own}_")), "")
    bare = (wanted or DEFAULT_NAMES[0]).removeprefix(f"{task}_")
    resolve(bare)
    metrics = tuple(dict.fromkeys([*DEFAULT_NAMES, bare]))
    return metrics, f"{task or tasks[0]}_{bare}" if tasks else bare


def _adding(calibrations: Mapping[str, Calibration]) -> Callable[[str, ListBatch], None]:
    return lambda task, batch: calibrations[task].add(batch)


def _data_part(folder: DataFolder, sizes: Mapping[str, Mapping[str, int]]) -> DataPart:
    manifest = read_json(folder.path / "manifest.json") or {}
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


def _with_categories(results: Results, categories: Categories | None, level: str) -> Results:
    """The same results by the categories of a level; empty without categories."""
    if categories is None:
        return {}
    column = getattr(categories, level)
    return {m: dataclasses.replace(found, categories=column) for m, found in results.items()}


def _sizes(
    judged: Judged,
    categories: Categories | None,
    sizes: Mapping[str, Mapping[str, int]],
    num_buckets: int,
) -> dict[str, Any]:
    found = {}
    for level in LEVELS if categories is not None else ():
        results = _with_categories(judged.results, categories, level)
        found[level] = gain_by_size(
            results, judged.metric, sizes[level], judged.baseline, num_buckets
        )
    return found


def _seeds(judged: Judged) -> list[SeedsPart]:
    """Runs that differ in their seed only, the baseline's first; none where all are single."""
    groups: dict[str, list[str]] = {}
    for name, loaded in judged.opened.items():
        settings = {**loaded.config.model_dump(mode="json"), "seed": None}
        groups.setdefault(repr(settings), []).append(name)
    if all(len(names) < 2 for names in groups.values()):
        return []
    first, *_ = groups.values()
    against = [judged.results[name] for name in first]
    parts = []
    for names in groups.values():
        mine = [judged.results[name] for name in names]
        metrics = list(mine[0].values)
        means = [summarize(result) for result in mine]
        intervals = {m: seed_interval([found[m].mean for found in means]) for m in metrics}
        differences = {m: compare_runs(mine, against, m) for m in metrics if names is not first}
        parts.append(SeedsPart(names, intervals, differences))
    return parts


def _run_part(
    folder: DataFolder,
    judged: Judged,
    name: str,
    calibration: dict[str, CalibrationReport],
    options: Options,
) -> RunPart:
    loaded = judged.opened[name]
    config, metrics = loaded.config, loaded.metrics
    usual = make_config({"model": config.model}).model_dump(mode="json")
    settings = config.model_dump(mode="json")
    history = read_json(loaded.path / HISTORY_FILE) or []
    builder = ElwcDatasetBuilder(folder, options.batch_size, tasks=judged.tasks)
    dataset = builder.build_evaluation_dataset(options.split)
    gates: dict[str, GateReport] = {}
    attention: dict[str, Any] = {}
    attention_lists = 0
    if isinstance(loaded, LoadedRun):
        gates = gate_reports(loaded.model, dataset, loaded.schema)
        batches = -(-options.attention_lists // options.batch_size)
        attention_lists, attention = attention_maps(
            loaded.model, dataset.take(batches), loaded.schema, options.attention_by
        )
    command = f"tfr-moe train --data {metrics.get('data', folder.path)}"
    return RunPart(
        name=name,
        path=str(loaded.path),
        model=config.model,
        settings={k: v for k, v in settings.items() if k != "model" and usual[k] != v},
        parameters=metrics.get("parameters"),
        best_epoch=int(metrics.get("best_epoch") or 0),
        epochs=int(metrics.get("epochs") or 0),
        seconds=float(metrics.get("seconds") or np.nan),
        versions=dict(metrics.get("versions", {})),
        command=f"{command} --config {loaded.path}/config.yaml --out RUN",
        curves=learning_curves(history, metrics, config) if history else None,
        probabilities=config.loss == POINTWISE and config.model not in BASELINE_NAMES,
        calibration=calibration,
        gates=gates,
        attention=attention,
        attention_lists=attention_lists,
        lists=lists_of(judged, name, dataset, options.num_lists),
    )
