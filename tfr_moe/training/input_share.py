"""How much of a training is spent waiting for its input."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.console import Console

from tfr_moe._compat import tf
from tfr_moe.folders import write_json

PROFILE_FILE = "profile.json"


class InputShare(tf.keras.callbacks.Callback):
    """Measures the time between asking for a batch and having it, as a share of the training steps.

    Batches pass through `timed`: in the graph, a clock is read before and after each is asked for. The first
    step of an epoch is left out: it fills buffers, and in the first epoch makes the graph.

    Args:
        console: where a line goes after each epoch.
        run: the run's folder, where the numbers of all epochs go as `profile.json`: `steps`,
            `seconds`, `waiting_seconds` and their `share`.

    Example:
        >>> import tempfile
        >>> share = InputShare(Console(quiet=True), Path(tempfile.mkdtemp()))
        >>> numbers = share.timed(tf.data.Dataset.range(3))
        >>> [int(n) for n in numbers], share.batches
        ([0, 1, 2], 3)
    """

    def __init__(self, console: Console, run: Path):
        super().__init__()
        self._console = console
        self._run = run
        self._epochs: list[dict[str, float]] = []
        self._waited = 0.0
        self._started: tuple[float, float, int] | None = None
        self.batches = 0

    def timed(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """The same batches, with the wait for each noted."""
        endless = tf.data.Dataset.range(tf.int64.max)
        clock = endless.map(lambda _: tf.timestamp())

        def note(before: Any, batch: Any, after: Any) -> Any:
            noted = tf.numpy_function(self._note, [after - before], tf.int64)
            with tf.control_dependencies([noted]):
                return tf.nest.map_structure(tf.identity, batch)

        # One after the other, in this order, in the thread that asks.
        watched = tf.data.Dataset.zip((clock, dataset, clock)).map(note)
        options = tf.data.Options()
        # A buffer behind the clocks would hide the wait from them.
        options.experimental_optimization.inject_prefetch = False
        watched = watched.with_options(options)
        count = dataset.cardinality()
        return (
            watched.apply(tf.data.experimental.assert_cardinality(count)) if count > 0 else watched
        )

    def _note(self, seconds: float) -> int:
        self._waited += float(seconds)
        self.batches += 1
        return self.batches

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Forgets what was before."""
        self._started = None

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Begins to count after the first step."""
        if self._started is None:
            self._started = (time.perf_counter(), self._waited, self.batches)

    def on_test_begin(self, logs: Any = None) -> None:
        """Ends the epoch's count: what follows is validation."""
        if self._started is None:
            return
        started, waited, batches = self._started
        steps, seconds = self.batches - batches, time.perf_counter() - started
        if steps < 1:
            return
        waiting = self._waited - waited
        share = min(1.0, waiting / seconds)
        self._started = None
        self._epochs.append(
            {"steps": steps, "seconds": seconds, "waiting_seconds": waiting, "share": share}
        )
        write_json(self._run / PROFILE_FILE, {"epochs": self._epochs})
        self._console.print(
            f"input: {share:.1%} of a step is spent waiting for it "
            f"({1e3 * waiting / steps:.1f} ms of {1e3 * seconds / steps:.1f} ms, {steps} steps)",
            highlight=False,
            soft_wrap=True,
        )
