"""The processes that train together, from `TF_CONFIG` or a specification. Loads no TensorFlow."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from typing import NamedTuple

from tfr_moe.config import RunConfig
from tfr_moe.errors import UserError

TF_CONFIG = "TF_CONFIG"
MULTI_WORKER = "MultiWorkerMirroredStrategy"
ROLES = ("chief", "worker")

_ADDRESS = re.compile(r"[^\s:,=]+:\d{1,5}")
_CLUSTER_FORM = "ROLE=HOST:PORT,HOST:PORT ..., such as 'worker=a:2222,b:2222'"


class ClusterTask(NamedTuple):
    """One process of a cluster.

    Attributes:
        role: `chief` or `worker`.
        number: its index among the processes of that role.
    """

    role: str
    number: int

    def __str__(self) -> str:
        return f"{self.role} {self.number}"


class Cluster(NamedTuple):
    """The processes that train together.

    Attributes:
        addresses: role -> HOST:PORT of each of its tasks.
        task: the task of this process.
    """

    addresses: dict[str, tuple[str, ...]]
    task: ClusterTask

    @property
    def tasks(self) -> list[ClusterTask]:
        """All tasks, workers first."""
        return [
            ClusterTask(role, index)
            for role in ("worker", "chief")
            for index in range(len(self.addresses.get(role, ())))
        ]

    @property
    def leader(self) -> ClusterTask:
        """The task that writes the run: the chief, or the first worker where there is no chief."""
        return ClusterTask("chief" if "chief" in self.addresses else "worker", 0)

    def of(self, task: ClusterTask) -> Cluster:
        """The same cluster with another task as this process."""
        return self._replace(task=task)

    def to_json(self) -> str:
        """The value of `TF_CONFIG`."""
        task = {"type": self.task.role, "index": self.task.number}
        return json.dumps({"cluster": self.addresses, "task": task})


def _make_cluster(
    addresses: Mapping[str, tuple[str, ...]], task: ClusterTask, source: str
) -> Cluster:
    for role, of_role in addresses.items():
        if role not in ROLES:
            raise UserError(f"{source}: unknown role {role!r}; allowed: {', '.join(ROLES)}")
        for address in of_role:
            if not _ADDRESS.fullmatch(address):
                raise UserError(f"{source}: {role} {address!r} must be HOST:PORT")
    every = [address for of_role in addresses.values() for address in of_role]
    repeated = {address for address in every if every.count(address) > 1}
    if repeated:
        raise UserError(f"{source}: {', '.join(sorted(repeated))} is given twice")
    if len(addresses.get("chief", ())) > 1:
        raise UserError(f"{source}: there must be one chief")
    if not addresses.get("worker") and not addresses.get("chief"):
        raise UserError(f"{source}: there must be a worker")
    if not 0 <= task.number < len(addresses.get(task.role, ())):
        raise UserError(f"{source}: there is no task {task.role}:{task.number} in the cluster")
    return Cluster({role: tuple(of_role) for role, of_role in addresses.items() if of_role}, task)


def parse_cluster(cluster: str, task: str) -> Cluster:
    """Parses a cluster and the task of this process.

    Args:
        cluster: `ROLE=HOST:PORT,HOST:PORT ...`.
        task: `ROLE:NUMBER`.

    Raises:
        UserError: if they are malformed, or the task is not in the cluster.

    Example:
        >>> cluster = parse_cluster("worker=a:2222,b:2222", "worker:1")
        >>> cluster.addresses, cluster.task.number
        ({'worker': ('a:2222', 'b:2222')}, 1)
    """
    addresses: dict[str, tuple[str, ...]] = {}
    for part in cluster.replace(";", " ").split():
        role, equals, of_role = part.partition("=")
        if not equals or role in addresses:
            raise UserError(f"cluster {cluster!r}: must be {_CLUSTER_FORM}")
        addresses[role] = tuple(of_role.split(","))
    role, _, index = task.partition(":")
    if not index.isdecimal():
        raise UserError(f"task {task!r}: must be ROLE:NUMBER, such as worker:0")
    source = f"cluster {cluster!r}, task {task}"
    return _make_cluster(addresses, ClusterTask(role, int(index)), source)


def cluster_from_environment(environment: Mapping[str, str] = os.environ) -> Cluster | None:
    """Parses `TF_CONFIG`; None if it is not set or names fewer than two processes.

    Raises:
        UserError: if it is malformed.

    Example:
        >>> cluster_from_environment({}) is None
        True
    """
    text = environment.get(TF_CONFIG, "")
    try:
        content = json.loads(text or "{}")
        addresses = {
            role: (of_role,) if isinstance(of_role, str) else tuple(of_role)
            for role, of_role in content.get("cluster", {}).items()
        }
        if sum(map(len, addresses.values())) < 2:
            return None
        task = ClusterTask(str(content["task"]["type"]), int(content["task"]["index"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{TF_CONFIG}: must be JSON with cluster and task (type, index). Received: {text!r}"
        ) from error
    return _make_cluster(addresses, task, TF_CONFIG)


def find_cluster(strategy: str | None, cluster: Cluster | None = None) -> Cluster | None:
    """The given cluster; otherwise that of `TF_CONFIG` if the strategy spans several processes."""
    if cluster is None and strategy == MULTI_WORKER:
        return cluster_from_environment()
    return cluster


def local_cluster(workers: int) -> Cluster:
    """A cluster on free ports of this machine, from the point of view of its leader."""
    with ExitStack() as stack:

        def free_address() -> str:
            reserved = stack.enter_context(socket.socket())
            reserved.bind(("127.0.0.1", 0))
            return f"127.0.0.1:{reserved.getsockname()[1]}"

        addresses = {"worker": tuple(free_address() for _ in range(workers))}
    return Cluster(addresses, ClusterTask("worker", 0))


def resolve_strategy(cluster: Cluster | None, strategy: str | None) -> str | None:
    """The strategy to use with a cluster.

    Args:
        cluster: None for a single process.
        strategy: the configured one; None to follow the cluster.

    Raises:
        UserError: if the two do not go together.

    Example:
        >>> resolve_strategy(parse_cluster("worker=a:1,b:1", "worker:0"), None)
        'MultiWorkerMirroredStrategy'
    """
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
    """The configuration with the strategy of the cluster.

    Raises:
        UserError: see `resolve_strategy`.
    """
    strategy = resolve_strategy(cluster, config.training.strategy)
    return config.replace(strategy=strategy)
