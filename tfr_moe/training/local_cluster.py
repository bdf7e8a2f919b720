"""All tasks of a cluster as processes of this machine: to try training on several workers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from tfr_moe.training.distribute import TF_CONFIG, Cluster, ClusterTask
from tfr_moe.utils.processes import ChildCommand, Supervisor, share_of_cores


def run_local_workers(
    cluster: Cluster, command: Callable[[ClusterTask], Sequence[str]], max_restarts: int = 3
) -> None:
    """Runs a command per task until the leader is done; when one fails, all are restarted.

    Each process reads its task from `TF_CONFIG` and must call
    `tfr_moe.utils.processes.exit_with_parent`. Its output goes to stderr, each line after the task.

    Args:
        cluster: of this machine, see `tfr_moe.training.distribute.local_cluster`.
        command: returns the command line of a task.
        max_restarts: how often the cluster is restarted.

    Raises:
        UserError: naming the task that failed and its exit code.
    """
    shared = {**share_of_cores(len(cluster.tasks)), "PYTHONUNBUFFERED": "1"}
    commands = [
        ChildCommand(str(task), command(task), {**shared, TF_CONFIG: cluster.of(task).to_json()})
        for task in cluster.tasks
    ]

    def log(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    with Supervisor(
        commands,
        leader=str(cluster.leader),
        max_restarts=max_restarts,
        prefix_output=True,
        log=log,
    ) as group:
        group.run()
