"""Analyse one run of a report: its gates, attention, calibration, cost and example lists."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.analysis.attention import attention_maps
from tfr_moe.analysis.calibration import Calibration, CalibrationCounter
from tfr_moe.analysis.importance import Importance
from tfr_moe.analysis.list_examples import ShownList, extremes, fetch, show_list
from tfr_moe.baselines import BaselineRun
from tfr_moe.data.folder import DataFolder
from tfr_moe.evaluation.evaluate import split_metric, task_names
from tfr_moe.evaluation.results import PerListResult
from tfr_moe.evaluation.significance import alignment
from tfr_moe.report.figures import Curves, learning_curves
from tfr_moe.scorers.gate_maps import GateReport, gate_reports
from tfr_moe.scorers.multitask import SCORES
from tfr_moe.training import LoadedRun
from tfr_moe.training.callbacks import read_history
from tfr_moe.training.collapsed_gates import collapsed_gates
from tfr_moe.utils.formats import command

Opened: TypeAlias = "LoadedRun | BaselineRun"

PROBABILITY_LOSS = "sigmoid_cross_entropy"
"""The loss under which scores are logits of probabilities."""
BATCH_SIZE = 128
ATTENTION_LISTS = 2000
"""Number of lists, from the start of the split, in the attention maps."""
MOST_LISTS = 4
"""Number of worst, best, lost and gained lists."""
_TIMED_LISTS = 20


@dataclass(frozen=True)
class EvaluatedRuns:
    """Loaded runs and their per-list metrics, by name.

    Attributes:
        results: all of the same lists.
        baseline: the run that the others are compared with; None for a single run.
        tasks: labels that all runs are evaluated on; empty for the primary label.
        metric: metric of the category tables and of single lists.
        scorers: the functions from features to scores, traced once.
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
        return split_metric(self.metric, self.tasks)[0]


@dataclass(frozen=True)
class RunPart:
    """One run.

    Attributes:
        settings: settings that differ from the model's defaults.
        parameters: their number; None for a model without parameters.
        best_epoch: the epoch, or the number of trees, that is used.
        milliseconds: median time to score one list, here and one at a time; NaN without lists.
        curves: see `learning_curves`; empty for a model that is not trained by epochs.
        gates: by name of the gate; empty without experts.
        warnings: what has collapsed in the gates, and what to change.
        calibration: of the scores as probabilities; None for a loss under which they are none.
        attention: an `AttentionMap` by grouping; empty without attention.
        attention_lists: number of lists in them.
        lists: of the subject, example lists by kind: `worst` and `best` by `Report.metric`, and
            `lost` and `gained` furthest below and above the baseline.
        importance: of the features of the subject; None if it was not asked for.
    """

    name: str
    path: str
    model: str
    settings: dict[str, Any]
    parameters: int | None
    best_epoch: int
    epochs: int
    seconds: float
    milliseconds: float
    versions: dict[str, str]
    command: str
    monitor: str
    curves: dict[str, Curves]
    gates: dict[str, GateReport]
    warnings: list[str]
    calibration: Calibration | None
    attention: dict[str, Any]
    attention_lists: int
    lists: dict[str, list[ShownList]]
    importance: Importance | None = None


def run_part(
    folder: DataFolder,
    evaluated: EvaluatedRuns,
    name: str,
    attention_by: Sequence[str],
    counter: CalibrationCounter,
    is_subject: bool,
) -> RunPart:
    """Analyses a run; its lists are shown if it is the subject of the report."""
    run = evaluated.opened[name]
    config, metrics = run.config, run.metrics
    dataset = evaluated.dataset
    gates: dict[str, GateReport] = {}
    attention: dict[str, Any] = {}
    attention_lists = 0
    if isinstance(run, LoadedRun):
        gates = gate_reports(run.model, dataset, run.schema)
        batches = -(-ATTENTION_LISTS // BATCH_SIZE)
        attention_lists, attention = attention_maps(
            run.model, dataset.take(batches), run.schema, attention_by
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
        monitor=str(metrics.get("monitor", "")),
        curves=learning_curves(read_history(run.path)),
        gates=gates,
        warnings=collapsed_gates(gates, config),
        calibration=counter.result() if probable else None,
        attention=attention,
        attention_lists=attention_lists,
        lists=_lists(evaluated, name, score) if is_subject else {},
    )


def _lists(
    evaluated: EvaluatedRuns, name: str, score: Callable[[Any], Any]
) -> dict[str, list[ShownList]]:
    """Lists of each kind, see `RunPart.lists`."""
    result = evaluated.results[name]
    values = result.metric(evaluated.metric)
    worst, best = extremes(values, result.num_items, MOST_LISTS)
    kinds: dict[str, list[int]] = {"worst": worst, "best": best, "lost": [], "gained": []}
    if evaluated.baseline is not None and name != evaluated.baseline:
        base = evaluated.results[evaluated.baseline]
        gaps = values - base.metric(evaluated.metric)[alignment(result, base)]
        lost, gained = extremes(gaps, result.num_items, MOST_LISTS)
        kinds["lost"] = [i for i in lost if gaps[i] < 0]
        kinds["gained"] = [i for i in gained if gaps[i] > 0]
    schema = evaluated.opened[name].schema
    examples: dict[int, ShownList] = {
        index: show_list(element, score, schema, evaluated.task, _values(evaluated, result, index))
        for index, element in fetch(evaluated.dataset, itertools.chain(*kinds.values()))
    }
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
    values = {
        name: float(other.metric(evaluated.metric)[alignment(result, other)[index]])
        for name, other in evaluated.results.items()
    }
    return {name: None if np.isnan(value) else value for name, value in values.items()}
