"""Which machines train together, and which of them this process is: TensorFlow's `TF_CONFIG`, or flags."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple

from tfr_moe.errors import UserError

TF_CONFIG = "TF_CONFIG"
MULTI_WORKER = "MultiWorkerMirroredStrategy"
PARAMETER_SERVER = "ParameterServerStrategy"
ROLES = ("chief", "worker", "ps")

_ADDRESS = re.compile(r"[^\s:,=]+:\d{1,5}")
_CLUSTER_FORM = "ROLE=HOST:PORT,HOST:PORT ..., such as 'worker=a:2222,b:2222'"


class Task(NamedTuple):
    """One process of a cluster.

    Attributes:
        role: `chief`, `worker` or `ps`.
        number: its place among those of its role.
    """

    role: str
    number: int

    def __str__(self) -> str:
        return f"{self.role} {self.number}"


class Cluster(NamedTuple):
    """The processes that train together.

    Attributes:
        addresses: role -> HOST:PORT of each of its tasks.
        task: which of them this process is.
    """

    addresses: dict[str, tuple[str, ...]]
    task: Task

    @property
    def tasks(self) -> list[Task]:
        """All tasks; those that others wait for come first."""
        return [
            Task(role, index)
            for role in ("ps", "worker", "chief")
            for index in range(len(self.addresses.get(role, ())))
        ]

    @property
    def asynchronous(self) -> bool:
        """Whether there are parameter servers."""
        return "ps" in self.addresses

    @property
    def leader(self) -> Task:
        """The task that writes the run: the chief, or the first worker where there is none."""
        return Task("chief" if "chief" in self.addresses else "worker", 0)

    @property
    def serves(self) -> bool:
        """Whether this process only does what the chief of parameter servers asks of it."""
        return self.asynchronous and self.task != self.leader

    def of(self, task: Task) -> Cluster:
        """The same cluster as another of its tasks sees it."""
        return self._replace(task=task)

    def to_json(self) -> str:
        """The value of `TF_CONFIG`."""
        task = {"type": self.task.role, "index": self.task.number}
        return json.dumps({"cluster": self.addresses, "task": task})


def _checked(addresses: Mapping[str, tuple[str, ...]], task: Task, where: str) -> Cluster:
    for role, found in addresses.items():
        if role not in ROLES:
            raise UserError(f"{where}: unknown role {role!r}; there are: {', '.join(ROLES)}")
        for address in found:
            if not _ADDRESS.fullmatch(address):
                raise UserError(f"{where}: {role} {address!r} must be HOST:PORT")
    every = [address for found in addresses.values() for address in found]
    twice = {address for address in every if every.count(address) > 1}
    if twice:
        raise UserError(f"{where}: {', '.join(sorted(twice))} stands there twice")
    if len(addresses.get("chief", ())) > 1:
        raise UserError(f"{where}: there must be one chief")
    if not addresses.get("worker") and ("ps" in addresses or not addresses.get("chief")):
        raise UserError(f"{where}: there must be a worker")
    if "ps" in addresses and not addresses.get("chief"):
        raise UserError(f"{where}: parameter servers (ps) need a chief")
    if not 0 <= task.number < len(addresses.get(task.role, ())):
        raise UserError(f"{where}: there is no task {task.role}:{task.number} in the cluster")
    return Cluster({role: tuple(found) for role, found in addresses.items() if found}, task)


def cluster_of_flags(cluster: str, task: str) -> Cluster:
    """What `--cluster` and `--task` say.

    Raises:
        UserError: in one line, where they don't name a cluster and a task of it.

    Example:
        >>> found = cluster_of_flags("worker=a:2222,b:2222", "worker:1")
        >>> found.addresses, found.task.number
        ({'worker': ('a:2222', 'b:2222')}, 1)
    """
    addresses: dict[str, tuple[str, ...]] = {}
    for part in cluster.replace(";", " ").split():
        role, equals, found = part.partition("=")
        if not equals or role in addresses:
            raise UserError(f"--cluster {cluster!r}: must be {_CLUSTER_FORM}")
        addresses[role] = tuple(found.split(","))
    role, _, index = task.partition(":")
    if not index.isdecimal():
        raise UserError(f"--task {task!r}: must be ROLE:NUMBER, such as worker:0")
    return _checked(addresses, Task(role, int(index)), f"--cluster {cluster!r} --task {task}")


def cluster_of_environment(environment: Mapping[str, str] = os.environ) -> Cluster | None:
    """What `TF_CONFIG` says; None where it is not set or names no cluster of several.

    Raises:
        UserError: in one line, where it is no cluster.

    Example:
        >>> cluster_of_environment({}) is None
        True
    """
    text = environment.get(TF_CONFIG, "")
    try:
        content = json.loads(text or "{}")
        addresses = {
            role: (found,) if isinstance(found, str) else tuple(found)
            for role, found in content.get("cluster", {}).items()
        }
        if sum(map(len, addresses.values())) < 2:
            return None
        task = Task(str(content["task"]["type"]), int(content["task"]["index"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{TF_CONFIG}: must be JSON with cluster and task (type, index), got {text!r}"
        ) from error
    return _checked(addresses, task, TF_CONFIG)


def cluster_for(strategy: str | None, cluster: Cluster | None = None) -> Cluster | None:
    """The given cluster, or for a strategy over several processes that of `TF_CONFIG`."""
    if cluster is None and strategy in (MULTI_WORKER, PARAMETER_SERVER):
        return cluster_of_environment()
    return cluster


def local_cluster(workers: int, parameter_servers: int = 0) -> Cluster:
    """A cluster on ports of this machine that are free now, seen by its leader."""
    counts = {"worker": workers}
    if parameter_servers:
        counts = {"chief": 1, "worker": workers, "ps": parameter_servers}
    with ExitStack() as stack:

        def free_address() -> str:
            found = stack.enter_context(socket.socket())
            found.bind(("127.0.0.1", 0))
            return f"127.0.0.1:{found.getsockname()[1]}"

        addresses = {
            role: tuple(free_address() for _ in range(count)) for role, count in counts.items()
        }
    leader = Task("chief" if parameter_servers else "worker", 0)
    return Cluster(addresses, leader)


def strategy_of(cluster: Cluster | None, chosen: str | None) -> str | None:
    """The strategy that goes with a cluster, where the settings leave it open.

    Args:
        cluster: None for a process by itself.
        chosen: what the settings say.

    Raises:
        UserError: where the two don't go together.

    Example:
        >>> strategy_of(cluster_of_flags("worker=a:1,b:1", "worker:0"), None)
        'MultiWorkerMirroredStrategy'
    """
    if cluster is None:
        if chosen == PARAMETER_SERVER:
            raise UserError(
                f"strategy {chosen} needs a chief, workers and parameter servers: give --cluster and "
                "--task, TF_CONFIG, or try it by --workers 2 --parameter-servers 1"
            )
        return chosen
    fitting = PARAMETER_SERVER if cluster.asynchronous else MULTI_WORKER
    if chosen not in (None, fitting):
        has = "has" if cluster.asynchronous else "has no"
        raise UserError(
            f"strategy {chosen}: the cluster {has} parameter servers, which asks for {fitting}"
        )
    return fitting


def settings_of(config: Any, cluster: Cluster | None) -> Any:
    """The settings with the cluster's strategy.

    Raises:
        UserError: see `strategy_of`.
    """
    strategy = strategy_of(cluster, config.strategy)
    return config.model_copy(update={"strategy": strategy})
