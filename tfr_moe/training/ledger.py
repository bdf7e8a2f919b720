"""The record of a run's epochs: history, best weights and early stopping, all derived from one file.

Keras' own EarlyStopping and ModelCheckpoint forget what was best when the process dies. Here both
follow from `history.json`, so that a resumed run decides as one that was never interrupted.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.folders import read_json, write_json
from tfr_moe.tasks import Task

HISTORY_FILE = "history.json"


def best_epoch(epochs: list[dict[str, Any]], monitor: str, higher: bool) -> dict[str, Any] | None:
    """The entry with the best value of `monitor`, the earliest of equals; None without a number."""
    judged = [entry for entry in epochs if not math.isnan(entry.get(monitor, math.nan))]
    if not judged:
        return None
    return (max if higher else min)(judged, key=lambda entry: entry[monitor])


def weights_path(run: Path, epoch: int) -> Path:
    """Where a run keeps the weights of an epoch."""
    return run / "checkpoints" / f"epoch-{epoch:04d}" / "weights"


class Ledger(tf.keras.callbacks.Callback):
    """Writes `history.json`, keeps the weights of the best epoch, and stops when nothing improves.

    Args:
        run: the run's folder.
        monitor: name in the logs, such as `val_session_auc`.
        higher: whether a higher value is better.
        patience: epochs without improvement after which training stops; 0 never stops.
        out: where to write; None for the run's folder.
    """

    def __init__(
        self, run: Path, monitor: str, higher: bool, patience: int, out: Path | None = None
    ):
        super().__init__()
        self._out = run if out is None else out
        self._monitor = monitor
        self._higher = higher
        self._patience = patience
        self.epochs: list[dict[str, Any]] = read_json(run / HISTORY_FILE) or []
        self._first = True

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Forgets what a killed process recorded of epochs that are now trained again."""
        if self._first:
            self.epochs = [entry for entry in self.epochs if entry["epoch"] < epoch + 1]
            self._first = False

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Records the epoch."""
        values = {name: float(value) for name, value in (logs or {}).items()}
        self.epochs.append({"epoch": epoch + 1, **values})
        best = self.best
        if best is self.epochs[-1]:
            self.model.save_weights(str(weights_path(self._out, epoch + 1)))
        write_json(self._out / HISTORY_FILE, self.epochs)
        if best is not None:
            self._remove_all_but(best["epoch"])
        if self.exhausted:
            self.model.stop_training = True

    @property
    def best(self) -> dict[str, Any] | None:
        """The entry of the best epoch so far."""
        return best_epoch(self.epochs, self._monitor, self._higher)

    @property
    def exhausted(self) -> bool:
        """Whether `patience` epochs have passed without improvement."""
        best = self.best
        if best is None or not self._patience:
            return False
        return self.epochs[-1]["epoch"] - best["epoch"] >= self._patience

    def _remove_all_but(self, epoch: int) -> None:
        keep = weights_path(self._out, epoch).parent
        for folder in (self._out / "checkpoints").glob("epoch-*"):
            if folder != keep:
                shutil.rmtree(folder, ignore_errors=True)


class TaskMeans(tf.keras.callbacks.Callback):
    """Adds to the logs the mean over tasks of each metric: `val_ndcg` from `val_click_ndcg`, ...

    Tasks whose metric is no number, having nothing to judge, are not in the mean.

    Args:
        tasks: the tasks of the run; without any nothing is added.
    """

    def __init__(self, tasks: Sequence[Task]):
        super().__init__()
        self._tasks = tuple(tasks)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Adds to the epoch's logs in place."""
        if logs is None:
            return
        for prefix in ("", "val_"):
            found: dict[str, list[float]] = {}
            for task in self._tasks:
                for metric in task.metrics:
                    value = logs.get(f"{prefix}{task.name}_{metric}", math.nan)
                    found.setdefault(f"{prefix}{metric}", []).append(value)
            for name, values in found.items():
                numbers = [value for value in values if not math.isnan(value)]
                logs[name] = sum(numbers) / len(numbers) if numbers else math.nan


class DropMissing(tf.keras.callbacks.Callback):
    """Takes values that are not numbers out of the logs, so that later callbacks don't see them.

    The regularisers' metrics have no value in validation (`TrainingMean`).
    """

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Filters the epoch's logs in place."""
        for name in [n for n, value in (logs or {}).items() if n != "loss" and math.isnan(value)]:
            del logs[name]  # type: ignore[union-attr]
