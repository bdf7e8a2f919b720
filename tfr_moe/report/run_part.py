"""Analyse one run of a report: its gates, attention, calibration, cost and example lists."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.analysis.attention import POSITIONS, attended, encoder_of, gather_maps
from tfr_moe.analysis.calibration import CalibrationCounter
from tfr_moe.analysis.item_groups import Grouping, Positions, grouping_of
from tfr_moe.analysis.learning_curves import learning_curves
from tfr_moe.analysis.list_examples import ShownList, extremes, fetch, show_list
from tfr_moe.baselines import BaselineRun
from tfr_moe.data.folder import DataFolder
from tfr_moe.evaluation.evaluate import task_names, task_of
from tfr_moe.evaluation.results import PerListResult
from tfr_moe.evaluation.significance import alignment
from tfr_moe.report.formats import command
from tfr_moe.report.model import RunPart
from tfr_moe.schema import FeatureSchema
from tfr_moe.scorers.gate_maps import GateReport, gate_reports
from tfr_moe.scorers.multitask import SCORES
from tfr_moe.training import LoadedRun
from tfr_moe.training.callbacks import read_history
from tfr_moe.training.collapsed_gates import collapsed_gates

Opened: TypeAlias = "LoadedRun | BaselineRun"

PROBABILITY_LOSS = "sigmoid_cross_entropy"
"""The loss under which scores are logits of probabilities."""
NUM_POSITIONS = 20
"""Number of list positions in the attention map by position."""
_SAMPLE_BATCHES = 10  # from which the groups of the attention maps are derived
_TIMED_LISTS = 20


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
        dataset: the lists.
        scorers: by name the function from features to scores, traced once.
    """

    opened: Mapping[str, Opened]
    results: Mapping[str, PerListResult]
    baseline: str | None
    tasks: tuple[str, ...]
    metric: str
    dataset: tf.data.Dataset
    scorers: Mapping[str, Callable[..., Any]]

    @property
    def task(self) -> str:
        """The task of `metric`; "" for models of one task."""
        return task_of(self.metric, self.tasks)


def run_part(
    folder: DataFolder,
    evaluated: EvaluatedRuns,
    name: str,
    options: ReportOptions,
    counter: CalibrationCounter,
    is_subject: bool,
) -> RunPart:
    """Analyses a run; its lists are shown if it is the subject of the report."""
    run = evaluated.opened[name]
    config, metrics = run.config, run.metrics
    history = read_history(run.path)
    dataset = evaluated.dataset
    gates: dict[str, GateReport] = {}
    attention: dict[str, Any] = {}
    attention_lists = 0
    if isinstance(run, LoadedRun):
        gates = gate_reports(run.model, dataset, run.schema)
        batches = -(-options.attention_lists // options.batch_size)
        attention_lists, attention = attention_maps(
            run.model, dataset.take(batches), run.schema, options.attention_by
        )
    score = _scorer(evaluated, name)
    probable = config.objective.loss == PROBABILITY_LOSS and isinstance(run, LoadedRun)
    return RunPart(
        name=name,
        path=str(run.path),
        model=config.model,
        settings={k: v for k, v in config.changed().items() if k != "model"},
        parameters=metrics.get("parameters"),
        best_epoch=int(metrics.get("best_epoch") or 0),
        epochs=int(metrics.get("epochs") or 0),
        seconds=float(metrics.get("seconds") or np.nan),
        milliseconds=_milliseconds(score, dataset),
        versions=dict(metrics.get("versions", {})),
        command=command(
            *("train", "--data", metrics.get("data", folder.path)),
            *("--config", run.path / "config.yaml", "--out", "RUN"),
        ),
        curves=learning_curves(history, metrics, config) if history else None,
        gates=gates,
        warnings=collapsed_gates(gates, config),
        calibration=counter.result() if probable else None,
        attention=attention,
        attention_lists=attention_lists,
        lists=_lists(evaluated, name, dataset, options.num_lists, score) if is_subject else {},
    )


def attention_maps(
    model: tf.keras.Model, dataset: tf.data.Dataset, schema: FeatureSchema, by: Sequence[str]
) -> tuple[int, dict[str, Any]]:
    """The number of lists, and maps by position and item features; none without attention."""
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


def _lists(
    evaluated: EvaluatedRuns,
    name: str,
    dataset: tf.data.Dataset,
    count: int,
    score: Callable[[Any], Any],
) -> dict[str, list[ShownList]]:
    """At most `count` lists of each kind, see `RunPart.lists`."""
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
    schema = evaluated.opened[name].schema
    examples: dict[int, ShownList] = {
        index: show_list(element, score, schema, evaluated.task, _values(evaluated, result, index))
        for index, element in fetch(dataset, [*worst, *best, *lost, *gained])
    }
    kinds = {"worst": worst, "best": best, "lost": lost, "gained": gained}
    return {kind: [examples[i] for i in indices] for kind, indices in kinds.items()}


def _scorer(evaluated: EvaluatedRuns, name: str) -> Callable[[Any], Any]:
    infer = evaluated.scorers[name]
    output = f"{SCORES}_{evaluated.task}" if task_names(evaluated.opened[name]) else None
    return lambda features: infer(features) if output is None else infer(features)[output]


def _milliseconds(score: Callable[[Any], Any], dataset: tf.data.Dataset) -> float:
    """Median time to score one list, one list at a time, after a first call that is not counted."""
    seconds = []
    for _, element in fetch(dataset, range(_TIMED_LISTS + 1)):
        started = time.perf_counter()
        score(element[0])
        seconds.append(time.perf_counter() - started)
    return 1000 * float(np.median(seconds[1:])) if len(seconds) > 1 else float("nan")


def _values(evaluated: EvaluatedRuns, result: PerListResult, index: int) -> dict[str, float | None]:
    """The metric of every run on one list, None where it is undefined."""
    values: dict[str, float | None] = {}
    for name, other in evaluated.results.items():
        value = float(other.metric(evaluated.metric)[alignment(result, other)[index]])
        values[name] = None if np.isnan(value) else value
    return values
