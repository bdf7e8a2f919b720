"""Commands that search, compare and report: tune, compare, report, explain."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tfr_moe.cli.options import BatchSize, Data, Seed, Split, reject_with, stderr
from tfr_moe.errors import UserError


def tune(
    data: Data,
    config: Annotated[
        Path, typer.Option("--config", help="sweep configuration (YAML); see docs/tuning.md")
    ],
    out: Annotated[Path, typer.Option("--out", help="folder of the sweep")],
    workers: Annotated[
        int,
        typer.Option(
            "--workers",
            help="processes that run trials on this machine and are restarted if they crash; "
            "0: run trials in this process",
            min=0,
        ),
    ] = 0,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="override, such as base.num_epochs=5; repeatable"),
    ] = None,
) -> None:
    """Search hyper-parameters.

    Re-running the same command resumes an interrupted sweep. The same command on other machines
    that see the sweep's folder joins a running one.

    Example: tfr-moe tune --data data --config sweep.yaml --out sweep
    """
    from tfr_moe.tuning.config import load_sweep_config

    sweep_config = load_sweep_config(config, settings or [])
    from tfr_moe.tuning.sweep import tune as run_sweep

    trials = run_sweep(data, out, sweep_config, stderr(), workers)
    failed = sum(trial.status == "failed" for trial in trials)
    _report_sweep(out)
    stderr().print(
        f"wrote {out}: {len(trials)} trials" + (f", {failed} failed" if failed else ""),
        soft_wrap=True,
        highlight=False,
    )


def compare(
    data: Data,
    out: Annotated[Path, typer.Option("--out", help="folder of the comparison")],
    models: Annotated[
        str,
        typer.Option("--models", help="names of `tfr-moe models`, with commas"),
    ] = "lambdamart,dnn,wide_dnn,adv_hsc_moe,ple,star",
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            help="training time, such as 90s, 30m or 2h: as many seeds as fit, from 2 to 10; "
            "reading and evaluation come on top; default: 3 seeds",
        ),
    ] = None,
    metric: Annotated[
        str, typer.Option("--metric", help="metric to select and compare models by")
    ] = "session_auc",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="a setting of all models that use it, key=value; repeatable"),
    ] = None,
    seed: Seed = 1,
) -> None:
    """Train several models and say which to ship.

    Each selects its learning rate on validation and is trained with several seeds. The test split
    is read once, for a leaderboard with intervals. Re-running the same command resumes.

    Example: tfr-moe compare --data data --out comparison --budget 30m
    """
    from tfr_moe.comparison import compare as compare_models
    from tfr_moe.utils.settings import parse_pairs

    board = compare_models(
        data,
        out,
        models.split(","),
        settings=parse_pairs(settings or []),
        metric=metric,
        budget=budget,
        seed=seed,
        console=stderr(),
    )
    console = Console()
    console.print(board.table(console.width))
    print(f"\n{board.verdict}")
    best = next(entry.best_run for entry in board.entries if entry.model == board.ship)
    stderr().print(
        f"wrote {out}/report.html; best run of {board.ship}: {out}/runs/{best}",
        soft_wrap=True,
        highlight=False,
    )


def report(
    data: Annotated[
        Path | None, typer.Option("--data", help="data-set folder made by `tfr-moe build`")
    ] = None,
    run: Annotated[
        list[Path] | None, typer.Option("--run", help="a finished run; repeatable")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="HTML file to write")] = None,
    sweep: Annotated[
        Path | None,
        typer.Option("--sweep", help="report a sweep, finished or not, instead of runs"),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option("--baseline", help="run to compare the others with; default: the first run"),
    ] = None,
    split: Split = "test",
    metric: Annotated[
        str | None,
        typer.Option("--metric", help="metric of categories and lists; default: session_auc"),
    ] = None,
    lists: Annotated[
        int, typer.Option("--lists", help="number of worst, best, lost and gained lists", min=0)
    ] = 4,
    by: Annotated[
        list[str] | None,
        typer.Option("--by", help="item feature for attention maps; repeatable"),
    ] = None,
    importance: Annotated[
        int,
        typer.Option(
            "--importance",
            help="number of validation lists for the importance of features, such as 2000; "
            "0: leave it out",
            min=0,
        ),
    ] = 0,
    batch_size: BatchSize = 128,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="also write the content as JSON")
    ] = None,
    svg: Annotated[
        Path | None, typer.Option("--svg", help="folder to write the figures to as SVG files")
    ] = None,
    png: Annotated[Path | None, typer.Option("--png", help="the same as PNG files")] = None,
) -> None:
    """Report runs or a sweep.

    Runs: one HTML file with metrics, comparisons, categories, gates, attention and curves.
    Sweep: table, HTML page, CSV and best.yaml in its folder.

    Example: tfr-moe report --data data --run runs/moe --out report.html
    """
    folders = {"svg": svg, "png": png}
    export = {kind: folder for kind, folder in folders.items() if folder is not None}
    if sweep is not None:
        of_runs: dict[str, object] = {
            "--data": data,
            "--run": run,
            "--out": out,
            "--baseline": baseline,
        }
        of_runs |= {"--metric": metric, "--by": by, "--json": json_file}
        reject_with("--sweep", {**of_runs, "--importance": importance or None})
        _report_sweep(sweep, export)
        return
    if data is None or not run:
        raise UserError("--data and --run, or --sweep, are required (see tfr-moe report --help)")
    if out is None:
        raise UserError("--out is required: the HTML file to write")
    for flag, path in (("--out", out), ("--json", json_file)):
        if path is not None and not path.parent.is_dir():
            raise UserError(f"{flag} {path}: there is no folder {path.parent}")
    from tfr_moe.evaluation.evaluate import plain
    from tfr_moe.report.build import ReportOptions, build_report
    from tfr_moe.report.files import write_page
    from tfr_moe.report.html import render_report

    options = ReportOptions(
        split, metric, batch_size, lists, tuple(by or ()), importance=importance
    )
    command = shlex.join(["tfr-moe", *sys.argv[1:]])
    content = build_report(data, run, baseline, options, command, stderr())
    write_page(render_report(content, export), out)
    if json_file is not None:
        json_file.write_text(json.dumps(plain(content), indent=1) + "\n", encoding="utf-8")
    size = out.stat().st_size / 1e6
    stderr().print(f"wrote {out} ({size:.1f} MB)", soft_wrap=True, highlight=False)


def _report_sweep(sweep: Path, export: Mapping[str, Path] | None = None) -> None:
    from tfr_moe.report.sweep import write_sweep_report
    from tfr_moe.tuning.leaderboard import print_table

    print_table(sweep, Console())
    stderr().print(f"wrote {write_sweep_report(sweep, export)}", soft_wrap=True, highlight=False)


def explain(
    run: Annotated[Path, typer.Option("--run", help="a finished run")],
    request: Annotated[
        Path, typer.Option("--request", help='JSON: {"context": ..., "items": [...]}, as for rank')
    ],
    out: Annotated[Path | None, typer.Option("--out", help="also write an HTML page")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of text")] = False,
) -> None:
    """Explain the order of one query's items.

    Prints what experts and features contribute, and what would change the order.

    Example: tfr-moe explain --run runs/moe --request request.json --out query.html
    """
    from tfr_moe.evaluation.evaluate import plain
    from tfr_moe.report.query_explanation import explain_request, render

    with stderr().status(f"explaining with {run}"):
        explanation = explain_request(run, request)
    if out is not None:
        explanation.save(out)
    if as_json:
        print(json.dumps(plain(explanation), indent=1))
        return
    console = Console()
    for part in render(explanation, console.width):
        console.print(part, highlight=False)
