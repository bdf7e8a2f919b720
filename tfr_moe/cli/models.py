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
    reject_with,
    reject_without,
    stderr,
    typed_settings,
)
from tfr_moe.errors import EXIT_PEER_LOST, EXIT_USAGE, UserError, error_line

if TYPE_CHECKING:
    from tfr_moe.config import RunConfig
    from tfr_moe.training import Cluster

# Settings of the query classifier and their types.
_QUERY_SETTINGS = {"query": str, "child": str, "parent": str, "epochs": int, "seed": int}


def train(
    out: Annotated[Path, typer.Option("--out", help="folder of the run")],
    data: Annotated[
        Path | None, typer.Option("--data", help="data-set folder made by `tfr-moe build`")
    ] = None,
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
    profile: Annotated[
        bool,
        typer.Option("--profile", help="write a TensorBoard profile of some steps"),
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option("--workers", help="number of training processes on this machine", min=1),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", help="'worker=a:2222,b:2222'; instead of TF_CONFIG"),
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", help="task of this process in --cluster: worker:0")
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option(
            "--queries",
            help="train a classifier of queries on this CSV or TSV instead; --set takes the "
            "columns (query=query, child=sub_category, parent=COLUMN), epochs=30 and seed=0",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="with --queries: replace --out if it exists")
    ] = False,
    child: Annotated[bool, typer.Option("--end-with-parent", hidden=True)] = False,
) -> None:
    """Train a model.

    Re-running the same command resumes an interrupted run.

    Example: tfr-moe train --data data --model adv_hsc_moe --out runs/moe
    """
    if queries is not None:
        reject_with(
            "--queries",
            {
                "--data": data,
                "--model": model,
                "--config": config,
                "--preset": preset,
                "--profile": profile,
                "--workers": workers,
                "--cluster": cluster,
                "--task": task,
            },
        )
        _train_queries(queries, out, settings or [], overwrite)
        return
    if data is None:
        raise UserError("Missing option '--data' (see tfr-moe train --help)")
    reject_without("--queries", {"--overwrite": overwrite})
    from tfr_moe.config import load_config

    settings = [
        *([] if preset is None else [f"preset={preset}"]),
        *(settings or []),
        *(["profile=true"] if profile else []),
    ]
    run_config = load_config(config, settings, **({} if model is None else {"model": model}))
    if workers is not None:
        if cluster is not None or task is not None:
            raise UserError("--workers starts its own cluster, without --cluster and --task")
        command = ["train", "--data", str(data), "--out", str(out)]
        command += ["--model", model] if model is not None else []
        command += ["--config", str(config)] if config is not None else []
        command += [part for pair in settings for part in ("--set", pair)]
        _train_on_this_machine(run_config, workers, command)
        return
    process = _cluster(cluster, task)
    run_config = _with_cluster(run_config, process)

    def train_it() -> dict[str, Any]:
        # Imported late: an invalid setting fails before TensorFlow is loaded.
        from tfr_moe.baselines import train_any

        return train_any(data, out, run_config, stderr(), process)

    if process is None:
        _print_result(train_it(), out)
        return
    result = _train_as_task(process, child, train_it)
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


def _cluster(cluster: str | None, task: str | None) -> Cluster | None:
    """The cluster of the flags, else of `TF_CONFIG`; None for a single process."""
    from tfr_moe.training.distribute import cluster_from_environment, parse_cluster

    if (cluster is None) != (task is None):
        raise UserError("--cluster and --task go together")
    if cluster is not None and task is not None:
        return parse_cluster(cluster, task)
    return cluster_from_environment()


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


def _train_on_this_machine(config: RunConfig, workers: int, command: list[str]) -> None:
    """Starts the workers of a cluster on loopback, restarts them when one fails, and waits.

    Args:
        config: the settings.
        workers: number of processes.
        command: the command line of each process, without its task.
    """
    from tfr_moe.training.distribute import local_cluster
    from tfr_moe.training.local_cluster import run_local_workers

    cluster = local_cluster(workers)
    _with_cluster(config, cluster)
    arguments = [sys.executable, "-m", "tfr_moe.cli", *command, "--end-with-parent"]
    run_local_workers(cluster, lambda task: arguments)


def _train_as_task(
    cluster: Cluster, child: bool, train: Callable[[], Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """Trains as one process of a cluster; exits with `EXIT_PEER_LOST` if it loses the others.

    Args:
        cluster: the cluster, with the task of this process.
        child: whether the parent process supervises this one.
        train: trains the model.

    Returns:
        The result of `train` in the leader, None in the other processes.
    """
    from tfr_moe.utils.processes import exit_with_parent

    if child:
        exit_with_parent()
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


def _train_queries(table: Path, out: Path, settings: list[str], overwrite: bool) -> None:
    values = typed_settings(settings, _QUERY_SETTINGS)
    query, child = values.pop("query", "query"), values.pop("child", "sub_category")
    parent = values.pop("parent", None)
    if values.get("epochs", 1) < 1:
        raise UserError(f"epochs must be >= 1. Received: {values['epochs']}")
    from tfr_moe.query_categories import Columns, train_query_categories

    result = train_query_categories(
        table, out, Columns(query, child, parent), overwrite=overwrite, **values
    )
    accuracy = f"accuracy {result['accuracy']:.3f}"
    if parent is not None:
        accuracy += f" ({result['parent_accuracy']:.3f} of {parent})"
    lines = [
        f"wrote {out}: {result['categories']} categories from {result['rows']} rows; on "
        f"{result['held_out_rows']} held-out rows {accuracy}, majority-class baseline "
        f"{result['accuracy_of_most_frequent']:.3f}"
    ]
    if result["rows_left_out"]:
        lines.append(f"skipped {result['rows_left_out']} rows without a query or a category")
    for row in result["by_least_probability"][1:]:
        right = "none" if row["accuracy"] is None else f"{row['accuracy']:.3f}"
        lines.append(
            f"query_probability={row['least']}: coverage {row['answered']:.3f}, accuracy {right}"
        )
    stderr().print("\n".join(lines), soft_wrap=True, highlight=False)


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
    from tfr_moe.evaluation.evaluate import evaluate_runs, to_json
    from tfr_moe.evaluation.tables import render

    result = evaluate_runs(data, run, baseline, split, metric, policy, batch_size, stderr())
    render(result, Console())
    notes = DataFolder(data).notes
    if "negatives" in notes:
        print(f"Negatives of these lists: {notes['negatives']}.")
    if json_file is not None:
        text = json.dumps({**to_json(result), "notes": notes}, indent=1) + "\n"
        try:
            json_file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UserError(f"--json {json_file}: cannot be written ({error.strerror})") from error
