"""Commands that train and judge models: train, evaluate, reproduce."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tfr_moe.commands.options import Data, stderr
from tfr_moe.errors import UserError


def train(
    data: Data,
    out: Annotated[Path, typer.Option("--out", help="folder of the run")],
    model: Annotated[
        str | None, typer.Option("--model", help="dnn, moe, adv_hsc_moe, lambdamart, ...")
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", help="settings as YAML")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="one setting, key=value; may be repeated")
    ] = None,
    preset: Annotated[
        str | None, typer.Option("--preset", help="settings by name: paper or recommended")
    ] = None,
    profile: Annotated[
        bool,
        typer.Option("--profile", help="measure the wait for input; write a TensorBoard profile"),
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option("--workers", help="try several workers, all on this machine", min=1),
    ] = None,
    parameter_servers: Annotated[
        int, typer.Option("--parameter-servers", help="with --workers: how many", min=0)
    ] = 0,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", help="'worker=a:2222,b:2222'; instead of TF_CONFIG"),
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", help="which of the cluster this is: worker:0")
    ] = None,
    child: Annotated[bool, typer.Option("--end-with-parent", hidden=True)] = False,
) -> None:
    """Train a model; the same command resumes a run that was killed."""
    settings = [*([] if preset is None else [f"preset={preset}"]), *(settings or [])]
    from tfr_moe.commands import workers as processes
    from tfr_moe.config import load_config

    chosen = {} if model is None else {"model": model}
    settings = [*(settings or []), *(["profile=true"] if profile else [])]
    run_config = load_config(config, settings, **chosen)
    if parameter_servers and workers is None:
        raise UserError("--parameter-servers goes with --workers")
    if workers is not None:
        if cluster is not None or task is not None:
            raise UserError("--workers starts its own cluster, without --cluster and --task")
        command = ["train", "--data", str(data), "--out", str(out)]
        command += ["--model", model] if model is not None else []
        command += ["--config", str(config)] if config is not None else []
        command += [part for pair in settings for part in ("--set", pair)]
        processes.train_on_this_machine(run_config, workers, parameter_servers, command)
        return
    place = processes.cluster_of(cluster, task)
    run_config = processes.checked(run_config, place)

    def train_it() -> dict[str, Any]:
        # A mistake in the settings is told before TensorFlow is loaded.
        from tfr_moe.baselines import train_any

        return train_any(data, out, run_config, stderr(), place)

    if place is None:
        _say_what_was_trained(train_it(), out)
        return
    result = processes.train_as_task(place, out, child, train_it)
    if result is not None:
        _say_what_was_trained(result, out)
    processes.leave()


def _say_what_was_trained(result: Mapping[str, Any], out: Path) -> None:
    best = ", ".join(f"{k[4:]} {v:.4f}" for k, v in result["best"].items() if k.startswith("val_"))
    stderr().print(
        f"wrote {out}: best of {result['epochs']} epochs is {result['best_epoch']} "
        f"(validation: {best})",
        soft_wrap=True,
        highlight=False,
    )


def evaluate(
    data: Data,
    run: Annotated[list[Path], typer.Option("--run", help="a run; may be repeated")],
    baseline: Annotated[
        Path | None, typer.Option("--baseline", help="the run that the others are compared with")
    ] = None,
    split: Annotated[str, typer.Option("--split", help="train, validation or test")] = "test",
    metric: Annotated[
        list[str] | None, typer.Option("--metric", help="a metric; may be repeated")
    ] = None,
    policy: Annotated[
        str, typer.Option("--policy", help="lists with nothing relevant: skip, zero or one")
    ] = "skip",
    batch_size: Annotated[int, typer.Option("--batch-size", help="lists per batch", min=1)] = 128,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the numbers here")] = None,
) -> None:
    """Compare trained models list by list, with tests of significance."""
    from tfr_moe.comparison import evaluate_runs
    from tfr_moe.data import DataFolder
    from tfr_moe.evaluation.report import to_json
    from tfr_moe.evaluation.tables import render

    found = evaluate_runs(data, run, baseline, split, metric, policy, batch_size, stderr())
    render(found, Console())
    notes = DataFolder(data).notes
    if "negatives" in notes:
        print(f"Negatives of these lists: {notes['negatives']}.")
    if json_file is not None:
        numbers = {**to_json(found), "notes": notes}
        _write(json_file, json.dumps(numbers, indent=1) + "\n", "--json")


def _write(path: Path, text: str, flag: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{flag} {path}: cannot be written ({error.strerror})") from error


def reproduce(
    study: Annotated[
        str, typer.Argument(help="mmoe-synthetic, census, context-aware-table3, prm-table3, ...")
    ],
    out: Annotated[Path, typer.Option("--out", help="folder of the study; resumes what is there")],
    data: Annotated[
        Path | None, typer.Option("--data", help="the data, for studies that don't make their own")
    ] = None,
    size: Annotated[
        str, typer.Option("--size", help="default, small, or the study's large one: paper or large")
    ] = "default",
    seeds: Annotated[
        int | None, typer.Option("--seeds", help="runs of each cell, instead of the size's", min=1)
    ] = None,
    processes: Annotated[
        int | None, typer.Option("--processes", help="runs at a time; by default all cores", min=1)
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="one setting, key=value; may be repeated")
    ] = None,
) -> None:
    """Run a study of a paper; the same command resumes one that was killed."""
    from tfr_moe.reproduce.study import Place
    from tfr_moe.reproduce.study import reproduce as run_study

    place = Place(out, processes or os.cpu_count() or 1, data, stderr())
    # Into a file the tables go as wide as they are.
    console = Console() if sys.stdout.isatty() else Console(width=160)
    for shown in run_study(study, place, size, settings or [], seeds):
        console.print(shown, soft_wrap=isinstance(shown, str), highlight=False)
    stderr().print(f"wrote {out}", soft_wrap=True, highlight=False)
