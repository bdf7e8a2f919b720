"""The processes that train together: `TF_CONFIG`, strategy, barrier, errors of other processes.

Loads TensorFlow only to join a cluster, so that an invalid `TF_CONFIG` fails fast.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tfr_moe import _compat
from tfr_moe.config import RunConfig
from tfr_moe.errors import UserError

TF_CONFIG = "TF_CONFIG"
MULTI_WORKER = "MultiWorkerMirroredStrategy"
ROLES = ("chief", "worker")

_ADDRESS = re.compile(r"[^\s:,=]+:\d{1,5}")


class ClusterTask(NamedTuple):
    """One process of a cluster: `number` is its index among the processes of its role."""

    role: str
    number: int

    def __str__(self) -> str:
        return f"{self.role} {self.number}"


class Cluster(NamedTuple):
    """The processes that train together: role -> HOST:PORT of each, and the task of this one."""

    addresses: dict[str, tuple[str, ...]]
    task: ClusterTask

    @property
    def leader(self) -> ClusterTask:
        """The task that writes the run: the chief, or the first worker where there is no chief."""
        return ClusterTask("chief" if "chief" in self.addresses else "worker", 0)


def _check_cluster(addresses: Mapping[str, tuple[str, ...]], task: ClusterTask) -> None:
    for role, of_role in addresses.items():
        if role not in ROLES:
            raise UserError(f"{TF_CONFIG}: unknown role {role!r}; allowed: {', '.join(ROLES)}")
        for address in of_role:
            if not _ADDRESS.fullmatch(address):
                raise UserError(f"{TF_CONFIG}: {role} {address!r} must be HOST:PORT")
    every = [address for of_role in addresses.values() for address in of_role]
    repeated = {address for address in every if every.count(address) > 1}
    if repeated:
        raise UserError(f"{TF_CONFIG}: {', '.join(sorted(repeated))} is given twice")
    if len(addresses.get("chief", ())) > 1:
        raise UserError(f"{TF_CONFIG}: there must be one chief")
    if not 0 <= task.number < len(addresses.get(task.role, ())):
        raise UserError(f"{TF_CONFIG}: task {task.role}:{task.number} is not in the cluster")


def cluster_from_environment(environment: Mapping[str, str] = os.environ) -> Cluster | None:
    """Parses `TF_CONFIG`; None if it is not set or names fewer than two processes."""
    text = environment.get(TF_CONFIG, "")
    try:
        content = json.loads(text or "{}")
        addresses = {
            role: (of_role,) if isinstance(of_role, str) else tuple(of_role)
            for role, of_role in content.get("cluster", {}).items()
        }
        addresses = {role: of_role for role, of_role in addresses.items() if of_role}
        if sum(map(len, addresses.values())) < 2:
            return None
        task = ClusterTask(str(content["task"]["type"]), int(content["task"]["index"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{TF_CONFIG}: must be JSON with cluster and task (type, index). Received: {text!r}"
        ) from error
    _check_cluster(addresses, task)
    return Cluster(addresses, task)


def find_cluster(strategy: str | None, cluster: Cluster | None = None) -> Cluster | None:
    """The given cluster; otherwise that of `TF_CONFIG` if the strategy spans several processes."""
    if cluster is None and strategy == MULTI_WORKER:
        return cluster_from_environment()
    return cluster


def resolve_strategy(cluster: Cluster | None, strategy: str | None) -> str | None:
    """The strategy to use with a cluster; None follows the cluster, or is one device."""
    if strategy == "ParameterServerStrategy":
        raise UserError(f"strategy {strategy} is not supported; use {MULTI_WORKER}")
    if cluster is None:
        return strategy
    if strategy not in (None, MULTI_WORKER):
        raise UserError(
            f"strategy {strategy} trains in one process, a cluster needs {MULTI_WORKER}"
        )
    return MULTI_WORKER


def with_strategy(config: RunConfig, cluster: Cluster | None) -> RunConfig:
    """The configuration with the strategy of the cluster, see `resolve_strategy`."""
    strategy = resolve_strategy(cluster, config.training.strategy)
    # Baselines have no such setting.
    return config if strategy == config.training.strategy else config.replace(strategy=strategy)


class LostWorkersError(UserError):
    """Other processes of the cluster are gone; the run resumes when all are started again."""


def lost_peers() -> tuple[Any, ...]:
    """What TensorFlow raises when another process of a cluster is gone."""
    names = ("Unavailable", "Aborted", "Cancelled", "FailedPrecondition", "DeadlineExceeded")
    return tuple(getattr(_compat.tf.errors, f"{name}Error") for name in (*names, "Internal"))


class ProcessContext(NamedTuple):
    """Strategy of this process, None for one device, and its cluster, None for a single process."""

    strategy: Any = None
    cluster: Cluster | None = None

    @property
    def is_leader(self) -> bool:
        """Whether this process writes the run."""
        return self.cluster is None or self.cluster.task == self.cluster.leader

    def scope(self) -> Any:
        """The context in which variables are created."""
        return _compat.tfr.python.keras.strategy_utils.strategy_scope(self.strategy)

    def barrier(self) -> None:
        """Waits until all processes of the cluster have called it."""
        tf, strategy = _compat.tf, self.strategy
        if strategy is None or self.cluster is None:
            return

        @tf.function
        def sum_over_replicas() -> Any:
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

    With several workers it must be called before TensorFlow computes anything. Without a cluster
    that of `TF_CONFIG` is read, under a strategy over several processes.
    """
    cluster = find_cluster(strategy, cluster)
    strategy = resolve_strategy(cluster, strategy)
    if strategy is None:
        return ProcessContext()
    tf, get_strategy = _compat.tf, _compat.tfr.python.keras.strategy_utils.get_strategy
    if cluster is None:
        return ProcessContext(get_strategy(strategy))
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster.addresses),
        task_type=cluster.task.role,
        task_id=cluster.task.number,
        rpc_layer="grpc",
    )
    return ProcessContext(get_strategy(strategy, resolver), cluster)


def shard_batches(dataset: Any, context: ProcessContext) -> Any:
    """Makes every replica take its share of each global batch; workers read data in one order."""
    if context.strategy is None:
        return dataset
    data = _compat.tf.data
    options = data.Options()
    policy = data.experimental.AutoShardPolicy.DATA
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


@contextlib.contextmanager
def translate_cluster_errors(context: ProcessContext) -> Iterator[None]:
    """Turns the errors of a broken cluster into a `LostWorkersError` of one line."""
    try:
        yield
    except lost_peers() as error:
        if context.cluster is None:
            raise
        # The cause is in the first or the last line, with traces of the graph between.
        lines = [line.strip() for line in error.message.splitlines() if line.strip()]
        cause = " ... ".join(dict.fromkeys([lines[0], lines[-1]])) if lines else "no reason given"
        raise LostWorkersError(
            f"{context.cluster.task}: lost other processes of the cluster ({type(error).__name__}: "
            f"{cause[:300]}); re-run the same command on all of them to resume"
        ) from error
