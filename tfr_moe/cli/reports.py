"""Commands that search, compare and report: tune, compare, report, explain."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

from rich.console import Console

from tfr_moe.cli.options import (
    Data,
    JsonFile,
    Run,
    Seed,
    Split,
    flag,
    note,
    reject_with,
    stderr,
    write_numbers,
)
from tfr_moe.errors import UserError
from tfr_moe.utils.io import plain


def tune(
    data: Data,
    config: Annotated[Path, flag("sweep configuration (YAML); see docs/tuning.md")],
    out: Annotated[Path, flag("folder of the sweep")],
    workers: Annotated[
        int,
        flag("worker processes, restarted if they crash; 0: run trials in this process", min=0),
    ] = 0,
    settings: Annotated[
        list[str] | None, flag("override, such as base.num_epochs=5; repeatable", "--set")
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
    failed = sum(trial.failed for trial in trials)
    _report_sweep(out)
    if trials and failed == len(trials):
        raise UserError(f"sweep {out}: all trials failed; the last: {trials[-1].error}")
    note(f"wrote {out}: {len(trials)} trials" + (f", {failed} failed" if failed else ""))


def compare(
    data: Data,
    out: Annotated[Path, flag("folder of the comparison")],
    models: Annotated[
        str, flag("model names, separated by commas; see `tfr-moe models`")
    ] = "lambdamart,dnn,wide_dnn,adv_hsc_moe,ple,star",
    budget: Annotated[
        str | None,
        flag("training time, such as 90s or 2h, for 2 to 10 seeds; default: 3 seeds"),
    ] = None,
    metric: Annotated[str, flag("metric to select and compare models by")] = "session_auc",
    settings: Annotated[
        list[str] | None,
        flag("a setting of all models that use it, key=value; repeatable", "--set"),
    ] = None,
    seed: Seed = 1,
) -> None:
    """Train and compare several models, and recommend one.

    Each model selects its learning rate on the validation split and is trained with several seeds.
    The test split is read once. Re-running the same command resumes an interrupted comparison.

    Example: tfr-moe compare --data data --out comparison --budget 30m
    """
    from tfr_moe.comparison import compare as compare_models
    from tfr_moe.utils.settings import parse_pairs

    board = compare_models(
        data,
        out,
        [name.strip() for name in models.split(",")],
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
    note(f"wrote {out}/report.html; best run of {board.ship}: {out}/runs/{best}")


def report(
    data: Annotated[Path | None, flag("data-set folder made by `tfr-moe build`")] = None,
    run: Annotated[list[Path] | None, flag("a finished run; repeatable")] = None,
    out: Annotated[Path | None, flag("HTML file to write")] = None,
    sweep: Annotated[Path | None, flag("report a sweep, finished or not, instead of runs")] = None,
    baseline: Annotated[
        Path | None, flag("run to compare the others with; default: the first run")
    ] = None,
    split: Split = "test",
    metric: Annotated[
        str | None, flag("metric of categories and lists; default: session_auc")
    ] = None,
    by: Annotated[
        list[str] | None, flag("item feature to group attention maps by; repeatable")
    ] = None,
    importance: Annotated[
        int,
        flag(
            "number of validation lists for the importance of features, such as 2000; 0: none",
            min=0,
        ),
    ] = 0,
    json_file: JsonFile = None,
    svg: Annotated[Path | None, flag("folder to write the figures to as SVG files")] = None,
) -> None:
    """Report runs or a sweep.

    Runs: one HTML file with metrics, comparisons, categories, gates, attention and curves.
    Sweep: table, HTML page, CSV and best.yaml in its folder.

    Example: tfr-moe report --data data --run runs/moe --out report.html
    """
    if sweep is not None:
        of_runs = {"--data": data, "--run": run, "--out": out, "--baseline": baseline}
        of_lists = {"--metric": metric, "--by": by, "--json": json_file}
        reject_with("--sweep", {**of_runs, **of_lists, "--importance": importance or None})
        _report_sweep(sweep, svg)
        return
    if data is None or not run:
        raise UserError("--data and --run, or --sweep, are required (see tfr-moe report --help)")
    if out is None:
        raise UserError("--out is required: the HTML file to write")
    for name, path in (("--out", out), ("--json", json_file)):
        if path is not None and not path.parent.is_dir():
            raise UserError(f"{name} {path}: there is no folder {path.parent}")
    from tfr_moe.report.build import build_report, render_report
    from tfr_moe.report.html import write_page
    from tfr_moe.utils.formats import command

    content = build_report(
        data,
        run,
        baseline,
        split=split,
        metric=metric,
        attention_by=by or (),
        importance=importance,
        command=command(*sys.argv[1:]),
        console=stderr(),
    )
    write_page(render_report(content, svg), out)
    write_numbers(json_file, content)
    note(f"wrote {out} ({out.stat().st_size / 1e6:.1f} MB)")


def _report_sweep(sweep: Path, svg: Path | None = None) -> None:
    from tfr_moe.report.sweep import write_sweep_report
    from tfr_moe.tuning.results import print_table

    print_table(sweep, Console())
    note(f"wrote {write_sweep_report(sweep, svg)}")


def explain(
    run: Run,
    request: Annotated[Path, flag('JSON: {"context": ..., "items": [...]}, as for rank')],
    out: Annotated[Path | None, flag("also write an HTML page")] = None,
    as_json: Annotated[bool, flag("print JSON instead of text", "--json")] = False,
) -> None:
    """Explain the ranking of one query.

    Prints the contributions of experts and features, and what would change the order.

    Example: tfr-moe explain --run runs/moe --request request.json --out query.html
    """
    from tfr_moe.report.query_explanation import explain_request

    with stderr().status(f"explaining with {run}"):
        explanation = explain_request(run, request)
    if out is not None:
        explanation.save(out)
    if as_json:
        print(json.dumps(plain(explanation), indent=1))
        return
    print(explanation)
