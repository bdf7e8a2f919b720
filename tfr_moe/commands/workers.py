"""Training on several workers: each by a command of its own, or all of them on this machine."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from tfr_moe.children import end_with_parent
from tfr_moe.cluster import (
    PARAMETER_SERVER,
    Cluster,
    cluster_of_environment,
    cluster_of_flags,
    local_cluster,
    settings_of,
)
from tfr_moe.commands.options import stderr
from tfr_moe.config import BASELINE_NAMES, RunConfig
from tfr_moe.errors import MISTAKE, UserError, error_line
from tfr_moe.folders import read_json
from tfr_moe.local_workers import LOST, run_local_workers

_BEGUN_AGAIN = "TFR_MOE_BEGUN_AGAIN"
_ATTEMPTS = 10
_PAUSE = 30.0
"""Seconds in which every worker notices that the others are gone, as TensorFlow looks for them."""


def cluster_of(cluster: str | None, task: str | None) -> Cluster | None:
    """The cluster that the flags name, or else `TF_CONFIG`; None for a process by itself."""
    if (cluster is None) != (task is None):
        raise UserError("--cluster and --task go together")
    if cluster is not None and task is not None:
        return cluster_of_flags(cluster, task)
    return cluster_of_environment()


def checked(config: RunConfig, cluster: Cluster | None) -> RunConfig:
    """The settings with the strategy of the cluster.

    Raises:
        UserError: where the two don't go together.
    """
    if cluster is not None and config.model in BASELINE_NAMES:
        raise UserError(f"model {config.model} trains in one process, not on several workers")
    # Made anew, so that what the strategy can't do is refused.
    resolved = settings_of(config, cluster)
    return type(config).model_validate(resolved.model_dump())


def train_on_this_machine(
    config: RunConfig, workers: int, parameter_servers: int, command: list[str]
) -> None:
    """Starts all tasks of a cluster on loopback and waits for them.

    Args:
        config: the settings.
        workers: how many.
        parameter_servers: how many; with any there is also a chief.
        command: what each runs, without what says where it stands.
    """
    if parameter_servers == 0 and config.strategy == PARAMETER_SERVER:
        raise UserError(f"strategy {PARAMETER_SERVER} needs --parameter-servers 1 or more")
    cluster = local_cluster(workers, parameter_servers)
    checked(config, cluster)
    arguments = [sys.executable, "-m", "tfr_moe.cli", *command, "--end-with-parent"]
    run_local_workers(cluster, lambda task: arguments)


def train_as_task(
    cluster: Cluster, out: Path, child: bool, train: Callable[[], Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """Does the part of one process of a cluster; one that loses the others begins again with them.

    Args:
        cluster: as this process sees it.
        out: the run's folder.
        child: whether the process that started this one looks after it.
        train: trains, for a process that does.

    Returns:
        What `train` returns, for the leader; None for the others.
    """
    if child:
        end_with_parent()
    elif _BEGUN_AGAIN in os.environ:
        # Who joins at once may meet processes that are about to begin again themselves, without end.
        time.sleep(_PAUSE)
    from tfr_moe.training import LostWorkersError, run, serve

    if cluster.serves:
        run.refuse_finished(out)
        serve(cluster, (out / run.METRICS_FILE).is_file)
        return None
    try:
        result = train()
    except LostWorkersError as error:
        if not child:
            _begin_again(error, out)
        _fail(error, LOST)
    except UserError as error:
        _fail(error, MISTAKE)
    return result if cluster.task == cluster.leader else None


def leave(code: int = 0) -> NoReturn:
    """Ends this process at once: TensorFlow's look-out for other workers holds up an orderly end."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _fail(error: object, code: int) -> NoReturn:
    print(error_line(error), file=sys.stderr)
    leave(code)


def _begin_again(error: UserError, out: Path) -> NoReturn:
    """Runs this command anew, in this process, unless it was in vain again and again."""
    epochs = len(read_json(out / "history.json") or [])
    before, _, times = os.environ.get(_BEGUN_AGAIN, "").partition(":")
    attempt = int(times) + 1 if before == str(epochs) else 1
    if attempt > _ATTEMPTS:
        _fail(f"{error}; given up after {_ATTEMPTS} times in which no epoch was finished", MISTAKE)
    os.environ[_BEGUN_AGAIN] = f"{epochs}:{attempt}"
    stderr().print(f"{error}; waiting for them", soft_wrap=True, highlight=False)
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
