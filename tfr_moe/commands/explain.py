"""The command that takes one query apart."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def explain(
    run: Annotated[Path, typer.Option("--run", help="a finished run")],
    request: Annotated[
        Path, typer.Option("--request", help='JSON: {"context": ..., "items": [...]}, as for rank')
    ],
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of tables")] = False,
) -> None:
    """Take one query apart: its gate, its experts, and what each item's score is made of."""
    from tfr_moe.evaluation.report import plain
    from tfr_moe.reporting.explain import explain_request
    from tfr_moe.reporting.explain_tables import render

    found = explain_request(run, request)
    if as_json:
        print(json.dumps(plain(found), indent=1))
        return
    console = Console() if sys.stdout.isatty() else Console(width=160)
    for shown in render(found):
        console.print(shown, highlight=False)
