"""The report for people."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from tfr_moe.commands.options import Data, stderr
from tfr_moe.errors import UserError


def report(
    data: Data,
    run: Annotated[list[Path], typer.Option("--run", help="a finished run; may be repeated")],
    out: Annotated[Path, typer.Option("--out", help="HTML file to make")],
    baseline: Annotated[
        Path | None,
        typer.Option("--baseline", help="the run that others are compared with; else the first"),
    ] = None,
    split: Annotated[str, typer.Option("--split", help="train, validation or test")] = "test",
    metric: Annotated[
        str | None, typer.Option("--metric", help="of categories and lists: session_auc, ...")
    ] = None,
    lists: Annotated[
        int, typer.Option("--lists", help="worst, best, lost and gained lists of a run", min=0)
    ] = 4,
    by: Annotated[
        list[str] | None,
        typer.Option("--by", help="an id or number of the items, for attention maps; repeatable"),
    ] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", help="lists per batch", min=1)] = 128,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="write the content here too")
    ] = None,
) -> None:
    """Write what runs are worth, and why, as one HTML file for people."""
    from tfr_moe.evaluation.report import plain
    from tfr_moe.reporting.gather import Options, gather
    from tfr_moe.reporting.page import write

    for path in (out, json_file):
        if path is not None and not path.parent.is_dir():
            raise UserError(f"{path}: there is no folder {path.parent}")
    options = Options(split, metric, batch_size, lists, tuple(by or ()))
    command = shlex.join(["tfr-moe", *sys.argv[1:]])
    found = gather(data, run, baseline, options, command, stderr())
    write(found, out)
    if json_file is not None:
        json_file.write_text(json.dumps(plain(found), indent=1) + "\n", encoding="utf-8")
    size = out.stat().st_size / 1e6
    stderr().print(f"wrote {out} ({size:.1f} MB)", soft_wrap=True, highlight=False)
