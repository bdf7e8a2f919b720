"""Callbacks of a run: history, early stopping, progress, gate warnings."""

from __future__ import annotations

import itertools
import math
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, PositiveInt
from rich.console import Console

from tfr_moe._compat import tf
from tfr_moe.config import RunConfig
from tfr_moe.config.tasks import Task
from tfr_moe.errors import UserError
from tfr_moe.training.collapsed_gates import gate_problems
from tfr_moe.training.run_folder import HISTORY_FILE
from tfr_moe.utils.console import ProgressCallback, make_log, warn
from tfr_moe.utils.io import read_json, write_json

_ENTROPY = "gate_entropy"
_DIVERGED = 1e6
"""No loss of the library comes near it while scores have the size of logits."""


def weights_path(run: Path, epoch: int) -> Path:
    """Path of the weights of an epoch."""
    return run / "checkpoints" / f"epoch-{epoch:04d}" / "weights"


class _Epoch(BaseModel):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, float]

    epoch: PositiveInt


def read_history(run: Path) -> list[dict[str, Any]]:
    """The entries of `history.json` by epoch; empty if there is no such file."""
    return read_json(run / HISTORY_FILE, list[_Epoch]) or []


def keras_history(run: Path, metrics: Mapping[str, Any]) -> tf.keras.callbacks.History:
    """Losses and metrics by epoch, as `Model.fit` returns them; one epoch for a baseline."""
    epochs = read_history(run) or [{"epoch": metrics["best_epoch"], **metrics["best"]}]
    history = tf.keras.callbacks.History()
    history.epoch = [entry["epoch"] - 1 for entry in epochs]
    names = dict.fromkeys(name for entry in epochs for name in entry if name != "epoch")
    history.history = {name: [e.get(name, math.nan) for e in epochs] for name in names}
    return history


def save_weights(model: tf.keras.Model, path: Path) -> None:
    """Saves what `load_weights` of an equal model reads, without the optimizer's two moments."""
    parts = dict(tf.train.TrackableView(model).children(model))
    parts.pop("optimizer", None)
    tf.train.Checkpoint(**parts).write(str(path))


class RunHistory(tf.keras.callbacks.Callback):
    """Writes `history.json`, saves the weights of the best epoch, and stops training early.

    Best epoch and early stopping follow from `history.json`, so that a resumed run decides as an
    uninterrupted one; Keras' ModelCheckpoint and EarlyStopping lose their state with the process.
    Training stops after `patience` epochs without improvement, 0 for never. Files are written to
    `out`, by default the folder of the run. Weights are saved only if `saves_weights`.
    """

    def __init__(
        self,
        run: Path,
        monitor: str,
        patience: int,
        out: Path | None = None,
        saves_weights: bool = True,
    ):
        super().__init__()
        self._saves_weights = saves_weights
        self._out = run if out is None else out
        self._monitor = monitor
        self._patience = patience
        self.epochs = read_history(run)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Drops the entries of epochs that a resumed run trains again, and all but the best."""
        self.epochs = [entry for entry in self.epochs if entry["epoch"] <= epoch]
        self._keep_best()

    def on_train_end(self, logs: Any = None) -> None:
        """Removes the weights of all epochs but the best."""
        self._keep_best()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Records the epoch; a UserError if `monitor` has no value on the validation lists."""
        values = {name: float(value) for name, value in (logs or {}).items()}
        self.epochs.append({"epoch": epoch + 1, **values})
        best = self.best
        if best is None:
            raise UserError(
                f"{self._monitor} is undefined: no validation list has the labels it needs, such "
                "as a relevant item and another one for session_auc"
            )
        if self._saves_weights and best is self.epochs[-1]:
            save_weights(self.model, weights_path(self._out, epoch + 1))
        write_json(self._out / HISTORY_FILE, self.epochs)
        if self.exhausted:
            self.model.stop_training = True

    def _keep_best(self) -> None:
        """Not before the state of the epoch is saved: without it, the best one may be repeated."""
        if (best := self.best) is None:
            return
        best_folder = weights_path(self._out, best["epoch"]).parent
        for folder in (self._out / "checkpoints").glob("epoch-*"):
            if folder != best_folder:
                shutil.rmtree(folder, ignore_errors=True)

    @property
    def best(self) -> dict[str, Any] | None:
        """The entry of the best epoch so far, the earliest of ties; None if all are undefined."""
        monitor = self._monitor
        defined = [entry for entry in self.epochs if not math.isnan(entry.get(monitor, math.nan))]
        choose = min if monitor == "val_loss" else max
        return choose(defined, key=lambda entry: entry[monitor], default=None)

    @property
    def exhausted(self) -> bool:
        """Whether `patience` epochs have passed without improvement."""
        best = self.best
        if best is None or not self._patience:
            return False
        return self.epochs[-1]["epoch"] - best["epoch"] >= self._patience


class DefinedLogs(tf.keras.callbacks.Callback):
    """Removes NaN from the logs, and adds the mean over tasks of each metric.

    Metrics of regularisers have no value in validation. `val_ndcg` is the mean of `val_click_ndcg`
    and those of the other tasks for which it is defined. A validation loss of NaN ends the run.
    """

    def __init__(self, tasks: Sequence[Task]):
        super().__init__()
        self._tasks = tuple(tasks)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Changes the logs in place; a UserError if the validation loss is not a number."""
        logs = {} if logs is None else logs
        if math.isnan(logs.get("val_loss", 0.0)):
            raise UserError(
                f"training diverged in epoch {epoch + 1}: the validation loss is not a number; "
                "reduce learning_rate or set clip_norm"
            )
        for name in [n for n, value in logs.items() if n != "loss" and math.isnan(value)]:
            del logs[name]
        by_metric: dict[str, list[float]] = {}
        for prefix, task in itertools.product(("", "val_"), self._tasks):
            for metric in task.metrics:
                if (value := logs.get(f"{prefix}{task.name}_{metric}")) is not None:
                    by_metric.setdefault(f"{prefix}{metric}", []).append(value)
        logs.update({name: sum(values) / len(values) for name, values in by_metric.items()})


class EpochProgress(tf.keras.callbacks.Callback):
    """Moves a bar over the steps of an epoch and prints a line with `monitor` after each epoch.

    `move` is that of `progress_bar`.
    """

    def __init__(self, console: Console, monitor: str, move: ProgressCallback):
        super().__init__()
        self._console = console
        self._monitor = monitor
        self._move = move
        self._started = time.monotonic()
        self._first_epoch: int | None = None
        self._epoch = ""
        self._warned = False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Starts the bar of the epoch."""
        self._epoch = f"epoch {epoch + 1}/{self.params['epochs']}"
        if self._first_epoch is None:
            self._first_epoch = epoch
            if epoch:
                self._console.print(f"resuming after epoch {epoch}")

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Moves the bar."""
        loss = (logs or {}).get("loss", math.nan)
        self._move(batch + 1, self.params["steps"], f"{self._epoch}  loss {loss:.4f}")

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Prints the line of the epoch."""
        logs = logs or {}
        highest = max(logs.get("loss", 0.0), logs["val_loss"])
        if highest > _DIVERGED and not self._warned:
            self._warned = True
            words = "training diverges; reduce learning_rate or set clip_norm"
            warn(self._console, f"the loss is {highest:.1e}: {words}")
        spent = time.monotonic() - self._started
        done = epoch + 1 - (self._first_epoch or 0)
        left = spent / done * (self.params["epochs"] - epoch - 1)
        values = [f"loss {logs.get('loss', math.nan):.4f}", f"val_loss {logs['val_loss']:.4f}"]
        if self._monitor != "val_loss":
            values.append(f"{self._monitor} {logs.get(self._monitor, math.nan):.4f}")
        line = f"{self._epoch}  {'  '.join(values)}  {spent:.0f} s, at most {left:.0f} s to go"
        make_log(self._console)(line)


def gate_warnings(logs: dict[str, Any], config: RunConfig) -> dict[str, str]:
    """Warnings about gates, experts and regularisers in the logs of an epoch: kind -> message.

    The metrics of a task's own gate end in `_<task>`, and so do the kinds of its warnings.
    """
    warnings = {}
    share = logs.get("adversarial_share", 0)
    if share > 0.25:
        warnings["adversarial"] = (
            f"AdvLoss is at {share:.0%} of its maximum K x D: experts may disagree for its own "
            "sake; reduce adversarial_weight"
        )
    for name in logs:
        if name.startswith(_ENTROPY):
            suffix = name.removeprefix(_ENTROPY)
            dead = logs.get(f"dead_experts{suffix}", 0)
            problems = gate_problems(
                suffix[1:],
                config,
                config.gate.num_experts,
                round(dead) if dead >= 1 else 0,  # NaN without items
                logs.get(f"busiest_share{suffix}", 0),
                logs[name],
            )
            warnings |= {f"{kind}{suffix}": message for kind, message in problems.items()}
    return warnings


class GateWarnings(tf.keras.callbacks.Callback):
    """Prints each kind of `gate_warnings` once, from the second epoch on."""

    def __init__(self, console: Console, config: RunConfig):
        super().__init__()
        self._console = console
        self._config = config
        self._printed: set[str] = set()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Checks the logs."""
        if epoch < 1:
            return
        for kind, message in gate_warnings(logs or {}, self._config).items():
            if kind not in self._printed:
                self._printed.add(kind)
                warn(self._console, message)
