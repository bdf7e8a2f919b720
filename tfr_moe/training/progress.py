"""What a person sees of a running training, on stderr: epochs, time left, and warnings."""

from __future__ import annotations

import math
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tfr_moe._compat import tf
from tfr_moe.config import RunConfig


class ProgressLines(tf.keras.callbacks.Callback):
    """A bar over the steps of the current epoch, and a line for each epoch that is done.

    Args:
        console: where to print.
        num_epochs: at most so many epochs.
        steps: steps of an epoch, where known.
        monitor: the validation metric to show.
    """

    def __init__(self, console: Console, num_epochs: int, steps: int | None, monitor: str):
        super().__init__()
        self._console = console
        self._num_epochs = num_epochs
        self._steps = steps
        self._monitor = monitor
        self._started = time.monotonic()
        self._first_epoch: int | None = None
        self._progress: Progress | None = None
        self._task: Any = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Starts the bar."""
        if self._first_epoch is None:
            self._first_epoch = epoch
            if epoch:
                self._console.print(f"resuming after epoch {epoch}")
        if not self._console.is_terminal:
            return
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total} steps  loss {task.fields[loss]}"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
        self._task = self._progress.add_task(
            f"epoch {epoch + 1}/{self._num_epochs}", total=self._steps, loss="-"
        )
        self._progress.start()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Moves the bar."""
        if self._progress is not None:
            loss = (logs or {}).get("loss", math.nan)
            self._progress.update(self._task, completed=batch + 1, loss=f"{loss:.4f}")

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Prints the epoch's line, with the time that is left if no epoch is spared."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
        logs = logs or {}
        spent = time.monotonic() - self._started
        done = epoch + 1 - (self._first_epoch or 0)
        left = spent / done * (self._num_epochs - epoch - 1)
        shown = [f"loss {logs.get('loss', math.nan):.4f}", f"val_loss {logs['val_loss']:.4f}"]
        if self._monitor != "val_loss":
            shown.append(f"{self._monitor} {logs.get(self._monitor, math.nan):.4f}")
        self._console.print(
            f"epoch {epoch + 1}/{self._num_epochs}  {'  '.join(shown)}  "
            f"{spent:.0f} s, at most {left:.0f} s to go",
            highlight=False,
            soft_wrap=True,
        )

    def on_train_end(self, logs: Any = None) -> None:
        """Closes the bar."""
        if self._progress is not None:
            self._progress.stop()


def gate_warnings(logs: dict[str, Any], config: RunConfig) -> dict[str, str]:
    """What the logs of an epoch say against the gate or the regularisers: kind -> sentence."""
    warnings = {}
    dead = logs.get("dead_experts", 0)
    if dead >= 1:
        warnings["dead"] = (
            f"{dead:.0f} of {config.num_experts} experts get less than a hundredth of an equal "
            "share of the gate's weight; importance_weight or load_weight spreads it"
        )
    share = logs.get("adversarial_share", 0)
    if share > 0.25:
        warnings["adversarial"] = (
            f"AdvLoss stands at {share:.0%} of its maximum K x D: experts may be disagreeing for "
            "its own sake; a smaller adversarial_weight holds it back"
        )
    entropy = logs.get("gate_entropy")
    uniform = math.log(config.top_k)
    if entropy is not None and config.top_k > 1 and entropy > 0.995 * uniform:
        warnings["uniform"] = (
            f"the gate is near uniform over its {config.top_k} experts (entropy {entropy:.3f} of "
            f"{uniform:.3f}); gate_learning_rate_multiplier lets it learn faster"
        )
    return warnings


class GateWatch(tf.keras.callbacks.Callback):
    """Warns once of each kind of trouble, from the second epoch on.

    Args:
        console: where to print.
        config: the run's settings.
    """

    def __init__(self, console: Console, config: RunConfig):
        super().__init__()
        self._console = console
        self._config = config
        self._said: set[str] = set()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Looks at the epoch's logs."""
        if epoch < 1:
            return
        for kind, sentence in gate_warnings(logs or {}, self._config).items():
            if kind not in self._said:
                self._said.add(kind)
                self._console.print(
                    f"warning: {sentence}", style="yellow", highlight=False, soft_wrap=True
                )
