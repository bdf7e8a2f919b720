"""Analyse one run of a report: its gates, attention, calibration and cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.analysis.attention import attention_maps
from tfr_moe.analysis.calibration import Calibration, CalibrationCounter
from tfr_moe.analysis.list_examples import fetch
from tfr_moe.baselines import BaselineRun
from tfr_moe.report.figures import Curves, learning_curves
from tfr_moe.scorers.gate_maps import GateReport, gate_reports
from tfr_moe.training import LoadedRun
from tfr_moe.training.callbacks import read_history
from tfr_moe.training.collapsed_gates import collapsed_gates
from tfr_moe.utils.formats import command

PROBABILITY_LOSS = "sigmoid_cross_entropy"
"""The loss under which scores are logits of probabilities."""
BATCH_SIZE = 128
ATTENTION_LISTS = 2000
"""Number of lists, from the start of the split, in the attention maps."""
_TIMED_LISTS = 20


@dataclass(frozen=True)
class RunPart:
    """One run.

    Attributes:
        settings: settings that differ from the model's defaults.
        metrics: the content of its `metrics.json`.
        milliseconds: median time to score one list, here and one at a time.
        curves: see `learning_curves`; empty for a model that is not trained by epochs.
        gates: by name of the gate; empty without experts.
        warnings: what has collapsed in the gates, and what to change.
        calibration: of the scores as probabilities; None for a loss under which they are none.
        attention: an `AttentionMap` by grouping; empty without attention.
        attention_lists: number of lists in them.
    """

    name: str
    path: str
    model: str
    settings: dict[str, Any]
    metrics: dict[str, Any]
    milliseconds: float
    command: str
    curves: dict[str, Curves]
    gates: dict[str, GateReport]
    warnings: list[str]
    calibration: Calibration | None
    attention: dict[str, Any]
    attention_lists: int


def run_part(
    name: str,
    run: LoadedRun | BaselineRun,
    score: Callable[..., Any],
    dataset: tf.data.Dataset,
    attention_by: Sequence[str],
    counter: CalibrationCounter,
) -> RunPart:
    """Analyses a run."""
    config = run.config
    gates: dict[str, GateReport] = {}
    attention: dict[str, Any] = {}
    attention_lists = 0
    if isinstance(run, LoadedRun):
        gates = gate_reports(run.model, dataset, run.schema)
        batches = -(-ATTENTION_LISTS // BATCH_SIZE)
        attention_lists, attention = attention_maps(
            run.model, dataset.take(batches), run.schema, attention_by
        )
    probable = config.objective.loss == PROBABILITY_LOSS and isinstance(run, LoadedRun)
    return RunPart(
        name=name,
        path=str(run.path),
        model=config.model,
        settings={k: v for k, v in config.changed().items() if k != "model"},
        metrics=run.metrics,
        milliseconds=_milliseconds(score, dataset),
        command=command(
            *("train", "--data", run.metrics["data"]),
            *("--config", run.path / "config.yaml", "--out", "RUN"),
        ),
        curves=learning_curves(read_history(run.path)),
        gates=gates,
        warnings=collapsed_gates(gates, config),
        calibration=counter.result() if probable else None,
        attention=attention,
        attention_lists=attention_lists,
    )


def _milliseconds(score: Callable[..., Any], dataset: tf.data.Dataset) -> float:
    """Median time to score one list, one list at a time, after a first call that is not counted."""
    seconds = []
    for _, element in fetch(dataset, range(_TIMED_LISTS + 1)):
        started = time.perf_counter()
        score(element[0])
        seconds.append(time.perf_counter() - started)
    return 1000 * float(np.median(seconds[1:] or seconds))
