"""Where a process stands among those that train together, and what that asks of a training."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tfr_moe._compat import tf, tfr
from tfr_moe.cluster import Cluster, cluster_for, strategy_of
from tfr_moe.errors import UserError

_POLL = 0.5


class LostWorkersError(UserError):
    """Other processes of the cluster are gone; the training goes on when all are started again."""


class Place(NamedTuple):
    """Where a process stands.

    Attributes:
        strategy: of `tf.distribute`; None for one device.
        cluster: the processes that train together; None for this one alone.
    """

    strategy: Any = None
    cluster: Cluster | None = None

    @property
    def leads(self) -> bool:
        """Whether this process writes the run."""
        return self.cluster is None or self.cluster.task == self.cluster.leader

    @property
    def asynchronous(self) -> bool:
        """Whether workers train side by side on variables that parameter servers hold."""
        return self.cluster is not None and self.cluster.asynchronous

    def scope(self) -> Any:
        """In which variables have to be made."""
        return tfr.python.keras.strategy_utils.strategy_scope(self.strategy)

    def meet(self) -> None:
        """Waits until all workers have come here."""
        strategy = self.strategy
        if strategy is None or self.cluster is None or self.asynchronous:
            return

        @tf.function
        def sum_of_all() -> Any:
            each = strategy.run(lambda: tf.ones([]))
            return strategy.reduce(tf.distribute.ReduceOp.SUM, each, axis=None)

        sum_of_all()

    def folder(self, run: Path) -> Path:
        """Where this process writes what a run holds: only the leader into the run itself.

        The others have to take part in each checkpoint, since they hold a part of some variables.
        """
        if self.cluster is None or self.leads:
            return run
        task = self.cluster.task
        return run / f".{task.role}-{task.number}"


def join(strategy: str | None, cluster: Cluster | None = None) -> Place:
    """Makes a strategy of TFR's pipeline; one of several workers waits here for the others.

    Must come before TensorFlow has computed anything, where there are several workers.

    Args:
        strategy: its name; None for one device.
        cluster: the processes that train together; None for what `TF_CONFIG` says.

    Raises:
        UserError: where strategy and cluster don't go together.
    """
    cluster = cluster_for(strategy, cluster)
    strategy = strategy_of(cluster, strategy)
    if strategy is None:
        return Place()
    get_strategy = tfr.python.keras.strategy_utils.get_strategy
    if cluster is None:
        return Place(get_strategy(strategy))
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster.addresses),
        task_type=cluster.task.role,
        task_id=cluster.task.number,
        rpc_layer="grpc",
    )
    # Expert towers are read as whole tensors: variables are not split over servers.
    return Place(get_strategy(strategy, resolver, variable_partitioner=None), cluster)


def serve(cluster: Cluster, done: Callable[[], bool]) -> None:
    """Does what the chief of parameter servers asks of this worker or server, until `done`."""
    tf.distribute.Server(
        tf.train.ClusterSpec(cluster.addresses),
        job_name=cluster.task.role,
        task_index=cluster.task.number,
        protocol="grpc",
    )
    while not done():
        time.sleep(_POLL)


def sharded(dataset: tf.data.Dataset, place: Place) -> tf.data.Dataset:
    """A dataset of global batches, of each of which every replica takes its share.

    Each worker goes through the whole data in the same order. The batches are those of one worker, the
    last one included, whatever the number of files.
    """
    if place.strategy is None:
        return dataset
    options = tf.data.Options()
    policy = tf.data.experimental.AutoShardPolicy.DATA
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


class LeaderValidation(tf.keras.callbacks.Callback):
    """Adds `val_...` to the logs by a model of this process alone.

    Workers of parameter servers can't tell which lists they have seen; here each list is judged once.

    Args:
        model: compiled, without a strategy.
        dataset: the validation data.
    """

    def __init__(self, model: tf.keras.Model, dataset: tf.data.Dataset):
        super().__init__()
        self._judge = model
        self._dataset = dataset

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Judges the weights as they are now."""
        weights = [weight.numpy() for weight in self.model.weights]

        def judge() -> dict[str, float]:
            self._judge.set_weights(weights)
            return self._judge.evaluate(self._dataset, verbose=0, return_dict=True)

        # A thread of its own is outside the scope of the strategy.
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(judge).result()
        if logs is not None:
            logs.update({f"val_{name}": value for name, value in found.items()})


@contextlib.contextmanager
def told_when_lost(place: Place) -> Iterator[None]:
    """Turns the errors of a broken cluster into one line.

    Raises:
        LostWorkersError: where another process is gone.
    """
    gone = (
        tf.errors.UnavailableError,
        tf.errors.AbortedError,
        tf.errors.CancelledError,
        tf.errors.FailedPreconditionError,
        tf.errors.DeadlineExceededError,
        tf.errors.InternalError,
    )
    try:
        yield
    except gone as error:
        if place.cluster is None:
            raise
        # The cause stands at the beginning or at the end, with traces of the graph between.
        lines = [line.strip() for line in error.message.splitlines() if line.strip()]
        cause = " ... ".join(dict.fromkeys([lines[0], lines[-1]])) if lines else "no reason given"
        raise LostWorkersError(
            f"{place.cluster.task}: lost other processes of the cluster ({type(error).__name__}: "
            f"{cause[:300]}); the same command goes on once all are there"
        ) from error
