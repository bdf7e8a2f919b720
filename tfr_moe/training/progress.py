"""What a person sees of a running training, on stderr: epochs, time left, and warnings."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tfr_moe._compat import tf
from tfr_moe.config import DENSE_MIXTURES, MULTITASK_NAMES, RunConfig


class EpochLines(tf.keras.callbacks.Callback):
    """A line for each epoch that is done.

    Args:
        console: where to print.
        num_epochs: at most so many epochs.
        monitor: the validation metric to show.
    """

    def __init__(self, console: Console, num_epochs: int, monitor: str):
        super().__init__()
        self._console = console
        self._num_epochs = num_epochs
        self._monitor = monitor
        self._started = time.monotonic()
        self._first_epoch: int | None = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Tells where a resumed run goes on."""
        if self._first_epoch is None:
            self._first_epoch = epoch
            if epoch:
                self._console.print(f"resuming after epoch {epoch}")

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Prints the epoch's line, with the time that is left if no epoch is spared."""
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


class ProgressLines(EpochLines):
    """A bar over the steps of the current epoch, and a line for each epoch that is done.

    Args:
        console: where to print.
        num_epochs: at most so many epochs.
        monitor: the validation metric to show.
        steps: steps of an epoch, where known.
    """

    def __init__(self, console: Console, num_epochs: int, monitor: str, steps: int | None):
        super().__init__(console, num_epochs, monitor)
        self._steps = steps
        self._progress: Progress | None = None
        self._task: Any = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Starts the bar."""
        super().on_epoch_begin(epoch, logs)
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
        """Closes the bar, then prints the epoch's line."""
        self.close()
        super().on_epoch_end(epoch, logs)

    def on_train_end(self, logs: Any = None) -> None:
        """Closes the bar."""
        self.close()

    def close(self) -> None:
        """Closes the bar, if one is open."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


@contextmanager
def no_bar_left(callbacks: Sequence[tf.keras.callbacks.Callback]) -> Iterator[None]:
    """Closes the bar of a training that fails or is interrupted: an open one hides the cursor."""
    try:
        yield
    finally:
        for callback in callbacks:
            if isinstance(callback, ProgressLines):
                callback.close()


_ENTROPY = "gate_entropy"
_FEWER = "fewer experts would do"
_FASTER = "gate_learning_rate_multiplier lets it learn faster"
_SPREAD = "importance_weight or load_weight spreads it"


def gate_warnings(logs: dict[str, Any], config: RunConfig) -> dict[str, str]:
    """What the logs of an epoch say against gates, experts or regularisers: kind -> sentence.

    The metrics of a gate that belongs to a task end in `_<task>`, and so do its warnings' kinds.
    """
    warnings = {}
    share = logs.get("adversarial_share", 0)
    if share > 0.25:
        warnings["adversarial"] = (
            f"AdvLoss stands at {share:.0%} of its maximum K x D: experts may be disagreeing for "
            "its own sake; a smaller adversarial_weight holds it back"
        )
    alike = logs.get("expert_correlation", 0)
    if alike > 0.95:
        warnings["alike"] = (
            f"the experts say nearly the same (expert_correlation {alike:.2f}): fewer or narrower "
            "experts would do"
        )
    for name in logs:
        if name.startswith(_ENTROPY):
            suffix = name.removeprefix(_ENTROPY)
            found = _warnings_of_gate(logs, suffix, config)
            warnings |= {f"{kind}{suffix}": sentence for kind, sentence in found.items()}
    return warnings


def _warnings_of_gate(logs: dict[str, Any], suffix: str, config: RunConfig) -> dict[str, str]:
    gate = f"the gate of {suffix[1:]}" if suffix else "the gate"
    dense = config.model in DENSE_MIXTURES
    mixed = config.num_experts if dense else config.top_k
    warnings = {}
    dead = logs.get(f"dead_experts{suffix}", 0)
    if dead >= 1:
        cure = _FEWER if config.model in MULTITASK_NAMES else _SPREAD
        warnings["dead"] = (
            f"{dead:.0f} of {config.num_experts} experts get less than a hundredth of an equal "
            f"share of the weight of {gate}; {cure}"
        )
    busiest = logs.get(f"busiest_share{suffix}", 0)
    if dense and mixed > 1 and busiest > 0.95:
        warnings["collapsed"] = (
            f"{gate} has collapsed: one expert gets {busiest:.0%} of its weight; a smaller "
            "learning_rate or dropout may keep the others alive"
        )
    entropy = logs[f"{_ENTROPY}{suffix}"]
    if mixed > 1 and entropy > 0.995 * math.log(mixed):
        cure = "fewer experts or a larger learning_rate may help" if dense else _FASTER
        warnings["uniform"] = (
            f"{gate} is near uniform over its {mixed} experts (entropy {entropy:.3f} of "
            f"{math.log(mixed):.3f}); {cure}"
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
