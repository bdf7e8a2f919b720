"""The role of this process in distributed training: strategy, cluster, barrier, errors of peers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tfr_moe._compat import tf, tfr
from tfr_moe.errors import UserError
from tfr_moe.training.distribute import Cluster, find_cluster, resolve_strategy

LOST_PEERS = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.FailedPreconditionError,
    tf.errors.DeadlineExceededError,
    tf.errors.InternalError,
)
"""What TensorFlow raises when another process of a cluster is gone."""


class LostWorkersError(UserError):
    """Other processes of the cluster are gone; the run resumes when all are started again."""


class ProcessContext(NamedTuple):
    """Strategy and cluster of this process.

    Attributes:
        strategy: a `tf.distribute.Strategy`; None for one device.
        cluster: the processes that train together; None for a single process.
    """

    strategy: Any = None
    cluster: Cluster | None = None

    @property
    def is_leader(self) -> bool:
        """Whether this process writes the run."""
        return self.cluster is None or self.cluster.task == self.cluster.leader

    def scope(self) -> Any:
        """The context in which variables are created."""
        return tfr.python.keras.strategy_utils.strategy_scope(self.strategy)

    def barrier(self) -> None:
        """Waits until all processes of the cluster have called it."""
        strategy = self.strategy
        if strategy is None or self.cluster is None:
            return

        @tf.function
        def sum_over_replicas() -> tf.Tensor:
            ones = strategy.run(lambda: tf.ones([]))
            return strategy.reduce(tf.distribute.ReduceOp.SUM, ones, axis=None)

        sum_over_replicas()

    def run_folder(self, run: Path) -> Path:
        """The folder that this process writes to: only the leader writes into the run itself.

        The others take part in each checkpoint, since they hold a part of some variables.
        """
        if self.cluster is None or self.is_leader:
            return run
        task = self.cluster.task
        return run / f".{task.role}-{task.number}"


def join_cluster(strategy: str | None, cluster: Cluster | None = None) -> ProcessContext:
    """Creates the strategy of TFR's pipeline; a worker of several waits here for the others.

    With several workers it must be called before TensorFlow computes anything.

    Args:
        strategy: its name; None for one device.
        cluster: the processes that train together; None to read `TF_CONFIG`.

    Raises:
        UserError: if strategy and cluster do not go together.
    """
    cluster = find_cluster(strategy, cluster)
    strategy = resolve_strategy(cluster, strategy)
    if strategy is None:
        return ProcessContext()
    get_strategy = tfr.python.keras.strategy_utils.get_strategy
    if cluster is None:
        return ProcessContext(get_strategy(strategy))
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster.addresses),
        task_type=cluster.task.role,
        task_id=cluster.task.number,
        rpc_layer="grpc",
    )
    return ProcessContext(get_strategy(strategy, resolver), cluster)


def shard_batches(dataset: tf.data.Dataset, context: ProcessContext) -> tf.data.Dataset:
    """Makes every replica take its share of each global batch.

    Each worker reads the whole data in the same order. The batches, including the last one, are
    those of one worker, whatever the number of files.
    """
    if context.strategy is None:
        return dataset
    options = tf.data.Options()
    policy = tf.data.experimental.AutoShardPolicy.DATA
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


@contextlib.contextmanager
def translate_cluster_errors(context: ProcessContext) -> Iterator[None]:
    """Turns the errors of a broken cluster into one line.

    Raises:
        LostWorkersError: if another process is gone.
    """
    try:
        yield
    except LOST_PEERS as error:
        if context.cluster is None:
            raise
        # The cause is in the first or the last line, with traces of the graph between.
        lines = [line.strip() for line in error.message.splitlines() if line.strip()]
        cause = " ... ".join(dict.fromkeys([lines[0], lines[-1]])) if lines else "no reason given"
        raise LostWorkersError(
            f"{context.cluster.task}: lost other processes of the cluster ({type(error).__name__}: "
            f"{cause[:300]}); re-run the same command on all of them to resume"
        ) from error
