"""Commands that search hyper-parameters: tune, tune-report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tfr_moe.commands.options import Data, stderr


def tune(
    data: Data,
    config: Annotated[Path, typer.Option("--config", help="the sweep as YAML; see docs/tuning.md")],
    out: Annotated[Path, typer.Option("--out", help="folder of the sweep")],
    workers: Annotated[
        int, typer.Option("--workers", help="trials at a time on this machine", min=1)
    ] = 1,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="key=value above the file, such as base.num_epochs=5"),
    ] = None,
    tuner_id: Annotated[
        str | None, typer.Option("--tuner-id", help="chief, or a worker's own name: worker-1, ...")
    ] = None,
    oracle: Annotated[
        str | None, typer.Option("--oracle", help="HOST:PORT of the chief, for chief and workers")
    ] = None,
    retrain: Annotated[
        int | None,
        typer.Option(
            "--retrain", help="then train the best with so many new seeds, and test them", min=1
        ),
    ] = None,
) -> None:
    """Search hyper-parameters; the same command goes on with a sweep that was killed."""
    from tfr_moe.tuning.config import load_sweep_config
    from tfr_moe.tuning.roles import Role

    role = Role.from_environment(tuner_id, oracle)
    sweep_config = load_sweep_config(config, settings or [])
    from tfr_moe.tuning.sweep import tune as run_sweep

    trials = run_sweep(data, out, sweep_config, stderr(), workers, role)
    failed = sum(trial.status == "failed" for trial in trials)
    if role.kind != "worker":
        _show_sweep(out, retrain)
    stderr().print(
        f"wrote {out}: {len(trials)} trials" + (f", {failed} of them failed" if failed else ""),
        soft_wrap=True,
        highlight=False,
    )


def tune_report(
    sweep: Annotated[Path, typer.Option("--sweep", help="folder of a sweep, finished or not")],
    retrain: Annotated[
        int | None,
        typer.Option(
            "--retrain", help="train the best with so many new seeds, and test them", min=1
        ),
    ] = None,
) -> None:
    """Show how far a sweep is: table, page, TensorBoard logs and best.yaml, without going on with it."""
    _show_sweep(sweep, retrain)


def _show_sweep(sweep: Path, retrain: int | None) -> None:
    from tfr_moe.tuning.report import print_table, write_report

    print_table(sweep, Console())
    page = write_report(sweep)
    if retrain is not None:
        from tfr_moe.retraining import print_retrained, retrain_and_test

        print_retrained(retrain_and_test(sweep, retrain, stderr()), Console())
        page = write_report(sweep)
    stderr().print(f"wrote {page}", soft_wrap=True, highlight=False)
