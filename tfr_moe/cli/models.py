"""Commands about models: train, evaluate, and those that list what there is."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from tfr_moe.cli.options import (
    BatchSize,
    Config,
    Data,
    JsonFile,
    Settings,
    Split,
    flag,
    note,
    stderr,
    write_numbers,
    yaml_text,
)
from tfr_moe.errors import EXIT_PEER_LOST, EXIT_USAGE, LostWorkersError, UserError, error_line
from tfr_moe.metrics.naming import DEFAULT_NAMES


def train(
    data: Data,
    out: Annotated[Path, flag("folder of the run")],
    model: Annotated[
        str | None, flag("model name; see `tfr-moe models`; default: adv_hsc_moe, or --config's")
    ] = None,
    config: Config = None,
    settings: Settings = None,
    preset: Annotated[
        str | None, flag("named settings: recommended (the defaults) or paper")
    ] = None,
    start: Annotated[
        Path | None, flag("a finished run whose weights and settings to start from", "--from")
    ] = None,
) -> None:
    """Train a model.

    Re-running the same command resumes an interrupted run.

    Example: tfr-moe train --data data --model adv_hsc_moe --out runs/moe
    """
    from tfr_moe.config import load_config

    settings = [*([] if preset is None else [f"preset={preset}"]), *(settings or [])]
    if start is not None and config is None:
        from tfr_moe.training.run_folder import config_of, stored_config

        config = config_of(start)
        stored_config(start)  # an error names the version that wrote it
    run_config = load_config(config, settings, **({} if model is None else {"model": model}))
    from tfr_moe.data import DataFolder

    folder = DataFolder(data)
    # Imported late: an invalid setting or data set fails before TensorFlow is loaded.
    from tfr_moe.baselines import train_any
    from tfr_moe.training.distribute import MULTI_WORKER, find_cluster, leads

    cluster = find_cluster()
    if cluster is not None and run_config.training.strategy != MULTI_WORKER:
        raise UserError(
            f"TF_CONFIG names several processes: set strategy={MULTI_WORKER}, or unset it"
        )
    try:
        result = train_any(folder, out, run_config, stderr(), start=start)
    except UserError as error:
        if cluster is None:
            raise
        print(error_line(error), file=sys.stderr)
        _exit_now(EXIT_PEER_LOST if isinstance(error, LostWorkersError) else EXIT_USAGE)
    if cluster is None or leads(cluster):
        best = result["best"].items()
        values = ", ".join(f"{k[4:]} {v:.4f}" for k, v in best if k.startswith("val_"))
        note(
            f"wrote {out}: best of {result['epochs']} epochs is {result['best_epoch']} "
            f"(validation: {values})"
        )
    if cluster is not None:
        _exit_now(0)


def _exit_now(code: int) -> NoReturn:
    """Ends this process at once: TensorFlow's watch over other workers delays a normal exit."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def evaluate(
    data: Data,
    run: Annotated[list[Path], flag("a finished run; repeatable")],
    baseline: Annotated[Path | None, flag("run to compare the others with")] = None,
    split: Split = "test",
    metric: Annotated[
        list[str] | None,
        flag(f"see `tfr-moe metrics`; repeatable; default: {', '.join(DEFAULT_NAMES)}"),
    ] = None,
    policy: Annotated[
        str, flag("value of lists without a relevant item: skip, zero, one")
    ] = "skip",
    batch_size: BatchSize = 128,
    json_file: JsonFile = None,
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
    write_numbers(json_file, {**to_json(result), "notes": notes})


def _print(headers: Iterable[str], rows: Iterable[tuple[str, ...]]) -> None:
    """Prints a table whose first column is never cut; as wide as it needs in a file."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, header in enumerate(headers):
        table.add_column(header, no_wrap=number == 0, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table, highlight=False, markup=False)


def models() -> None:
    """List the models.

    Example: tfr-moe models
    """
    from tfr_moe.config import MODELS

    _print(("model", "what it is"), ((name, spec.summary) for name, spec in MODELS.items()))


def losses() -> None:
    """List the losses that `--set loss=` takes.

    Example: tfr-moe losses
    """
    from tfr_moe.losses import summaries

    _print(("loss", "what it is"), summaries().items())


def metrics() -> None:
    """List the metrics that `--metric` and `--set metrics=` take.

    Example: tfr-moe metrics
    """
    from tfr_moe.metrics.naming import SUMMARIES

    _print(("metric", "what it is"), SUMMARIES.items())


def settings(
    model: Annotated[str | None, typer.Argument(help="model name; default: all settings")] = None,
) -> None:
    """List the settings of a model with their defaults.

    Example: tfr-moe settings adv_hsc_moe
    """
    from tfr_moe.config import MODELS, SETTINGS, RunConfig

    if model is not None and model not in MODELS:
        raise UserError(f"model {model!r} is unknown; allowed: {', '.join(MODELS)}")
    config = RunConfig(model=model or "adv_hsc_moe")
    names = [n for n in SETTINGS if model is None or n in config.spec.settings]
    defaults = config.flat()
    _print(
        ("setting", "default", "what it is"),
        ((n, yaml_text(defaults[n]), SETTINGS[n].field.description or "") for n in names),
    )
