"""The processes that train together: strategy, barrier, errors of other processes."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tfr_moe._compat import tf, tfr
from tfr_moe.errors import LostWorkersError, UserError

TF_CONFIG = "TF_CONFIG"
MULTI_WORKER = "MultiWorkerMirroredStrategy"
_JOBS = ("chief", "worker")


class ProcessContext(NamedTuple):
    """The strategy of this process, TensorFlow's default one for one device."""

    strategy: tf.distribute.Strategy

    @property
    def worker(self) -> str | None:
        """Role and number of this process in its cluster, such as `worker-1`, or None."""
        resolver = self.strategy.cluster_resolver
        if resolver is None or resolver.task_type is None:
            return None
        return f"{resolver.task_type}-{resolver.task_id}"

    @property
    def is_leader(self) -> bool:
        """Whether this process writes the run."""
        return self.worker is None or leads(self.strategy.cluster_resolver)

    def barrier(self) -> None:
        """Waits until all processes of the cluster have called it."""
        strategy = self.strategy
        if self.worker is None:
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
        return run if self.is_leader else run / f".{self.worker}"


def leads(cluster: tf.distribute.cluster_resolver.ClusterResolver) -> bool:
    """Whether this process is the chief, or the first worker of a cluster without one."""
    first = "chief" if "chief" in cluster.cluster_spec().jobs else "worker"
    return (cluster.task_type, cluster.task_id) == (first, 0)


def find_cluster() -> tf.distribute.cluster_resolver.ClusterResolver | None:
    """The cluster of `TF_CONFIG`; None if it is not set or names fewer than two processes.

    Raises a UserError for an invalid `TF_CONFIG`.
    """
    if TF_CONFIG not in os.environ:
        return None
    with _reading_cluster():
        cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        processes = cluster.cluster_spec()
        # TensorFlow would wait forever for parameter servers.
        if unknown := set(processes.jobs) - set(_JOBS):
            raise ValueError(f"job {min(unknown)!r} is not supported; use {' and '.join(_JOBS)}")
        several = sum(map(processes.num_tasks, processes.jobs)) > 1
        return cluster if several else None


def join_cluster(strategy: str | None) -> ProcessContext:
    """Creates the strategy of TFR's pipeline; a worker of several waits here for the others.

    `MultiWorkerMirroredStrategy` reads the cluster from `TF_CONFIG`, and must be created before
    TensorFlow computes anything. Raises a UserError for an invalid `TF_CONFIG`.
    """
    if strategy == MULTI_WORKER:
        find_cluster()
    with _reading_cluster():
        return ProcessContext(_strategy(strategy))


@functools.cache
def _strategy(name: str | None) -> tf.distribute.Strategy:
    """One of each name in a process: collective operations of a second one have the same keys."""
    return tfr.python.keras.strategy_utils.get_strategy(name) or tf.distribute.get_strategy()


@contextlib.contextmanager
def _reading_cluster() -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, KeyError, tf.errors.InvalidArgumentError) as error:
        raise UserError(f"{TF_CONFIG}: {' '.join(str(error).split())}") from error


def shard_batches(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Makes every replica take its share of each global batch; workers read data in one order."""
    options = tf.data.Options()
    policy = tf.data.experimental.AutoShardPolicy.DATA
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


@contextlib.contextmanager
def translate_cluster_errors(context: ProcessContext) -> Iterator[None]:
    """Turns what TensorFlow raises for a lost process into a `LostWorkersError` of one line."""
    names = ("Unavailable", "Aborted", "Cancelled", "FailedPrecondition", "DeadlineExceeded")
    errors = tuple(getattr(tf.errors, f"{name}Error") for name in (*names, "Internal"))
    try:
        yield
    except errors as error:
        if context.worker is None:
            raise
        # The cause is in the first or the last line, with traces of the graph between.
        lines = [line.strip() for line in error.message.splitlines() if line.strip()]
        cause = " ... ".join(dict.fromkeys([lines[0], lines[-1]])) if lines else "no reason given"
        raise LostWorkersError(
            f"{context.worker}: lost other processes of the cluster ({type(error).__name__}: "
            f"{cause[:300]}); re-run the same command on all of them to resume"
        ) from error
