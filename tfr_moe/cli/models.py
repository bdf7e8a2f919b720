"""Commands that train and evaluate models: train, evaluate."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console

from tfr_moe.cli.options import (
    BatchSize,
    Data,
    Split,
    stderr,
)
from tfr_moe.errors import EXIT_PEER_LOST, EXIT_USAGE, UserError, error_line

if TYPE_CHECKING:
    from tfr_moe.config import RunConfig
    from tfr_moe.training import Cluster


def train(
    data: Data,
    out: Annotated[Path, typer.Option("--out", help="folder of the run")],
    model: Annotated[
        str | None,
        typer.Option("--model", help="see `tfr-moe models`; default: adv_hsc_moe, or --config's"),
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", help="settings as YAML")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="a setting, key=value; see `tfr-moe settings`; repeatable"),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option("--preset", help="settings by name: recommended (the defaults) or paper"),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option("--from", help="a finished run: start from its weights, with its settings"),
    ] = None,
) -> None:
    """Train a model.

    Re-running the same command resumes an interrupted run.

    Example: tfr-moe train --data data --model adv_hsc_moe --out runs/moe
    """
    from tfr_moe.config import load_config

    settings = [
        *([] if preset is None else [f"preset={preset}"]),
        *(settings or []),
    ]
    if start is not None and config is None:
        from tfr_moe.training.run_folder import config_of

        config = config_of(start)
    run_config = load_config(config, settings, **({} if model is None else {"model": model}))
    from tfr_moe.training.distribute import cluster_from_environment

    process = cluster_from_environment()
    run_config = _with_cluster(run_config, process)
    from tfr_moe.data import DataFolder

    folder = DataFolder(data)

    def train_it() -> dict[str, Any]:
        # Imported late: an invalid setting or data set fails before TensorFlow is loaded.
        from tfr_moe.baselines import train_any

        return train_any(folder, out, run_config, stderr(), process, start=start)

    if process is None:
        _print_result(train_it(), out)
        return
    result = _train_as_task(process, train_it)
    if result is not None:
        _print_result(result, out)
    _exit_now()


def _print_result(result: Mapping[str, Any], out: Path) -> None:
    best = ", ".join(f"{k[4:]} {v:.4f}" for k, v in result["best"].items() if k.startswith("val_"))
    stderr().print(
        f"wrote {out}: best of {result['epochs']} epochs is {result['best_epoch']} "
        f"(validation: {best})",
        soft_wrap=True,
        highlight=False,
    )


def _with_cluster(config: RunConfig, cluster: Cluster | None) -> RunConfig:
    """The settings with the strategy of the cluster.

    Raises:
        UserError: for a model that trains in one process.
    """
    from tfr_moe.config import BASELINE_NAMES
    from tfr_moe.training.distribute import with_strategy

    if cluster is not None and config.model in BASELINE_NAMES:
        raise UserError(f"model {config.model} trains in one process, not on several workers")
    return with_strategy(config, cluster)


def _train_as_task(
    cluster: Cluster, train: Callable[[], Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """Trains as one process of a cluster; exits with `EXIT_PEER_LOST` if it loses the others.

    Args:
        cluster: the cluster, with the task of this process.
        train: trains the model.

    Returns:
        The result of `train` in the leader, None in the other processes.
    """
    from tfr_moe.training import LostWorkersError

    try:
        result = train()
    except LostWorkersError as error:
        print(error_line(error), file=sys.stderr)
        _exit_now(EXIT_PEER_LOST)
    except UserError as error:
        print(error_line(error), file=sys.stderr)
        _exit_now(EXIT_USAGE)
    return result if cluster.task == cluster.leader else None


def _exit_now(code: int = 0) -> NoReturn:
    """Ends this process at once: TensorFlow's watch over other workers delays a normal exit."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def evaluate(
    data: Data,
    run: Annotated[list[Path], typer.Option("--run", help="a finished run; repeatable")],
    baseline: Annotated[
        Path | None, typer.Option("--baseline", help="run to compare the others with")
    ] = None,
    split: Split = "test",
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", help="a metric; see `tfr-moe metrics`; repeatable"),
    ] = None,
    policy: Annotated[
        str,
        typer.Option("--policy", help="value of lists without a relevant item: skip, zero, one"),
    ] = "skip",
    batch_size: BatchSize = 128,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="also write the numbers as JSON")
    ] = None,
) -> None:
    """Evaluate runs, and compare them with a baseline.

    Differences are paired by list and come with tests of significance.

    Example: tfr-moe evaluate --data data --run runs/moe --baseline runs/dnn
    """
    from tfr_moe.data import DataFolder

    folder = DataFolder(data)
    from tfr_moe.evaluation.evaluate import evaluate_runs, to_json
    from tfr_moe.evaluation.tables import render

    result = evaluate_runs(folder, run, baseline, split, metric, policy, batch_size, stderr())
    render(result, Console())
    notes = folder.notes
    if "negatives" in notes:
        print(f"Negatives of these lists: {notes['negatives']}.")
    if json_file is not None:
        text = json.dumps({**to_json(result), "notes": notes}, indent=1) + "\n"
        try:
            json_file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UserError(f"--json {json_file}: cannot be written ({error.strerror})") from error
