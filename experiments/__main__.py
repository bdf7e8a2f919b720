"""`python -m experiments` lists the studies, `python -m experiments STUDY --out DIR` runs one."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from experiments.common.study import STUDIES, StudyContext, run_study
from tfr_moe.errors import EXIT_INTERRUPTED, EXIT_USAGE, UserError, error_line


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m experiments",
        description="Run a study, or list all. The same command resumes an interrupted run.",
        epilog="example: python -m experiments mmoe-synthetic --size small --out studies/synthetic",
    )
    parser.add_argument("study", nargs="?", help="name of the study; list all studies if omitted")
    parser.add_argument("--out", type=Path, help="folder of the study; finished runs are reused")
    parser.add_argument("--data", type=Path, help="data set, for studies that need one")
    parser.add_argument(
        "--size", default="default", help="named size of the study (default, small)"
    )
    parser.add_argument("--seeds", type=int, help="runs of each cell (default: as the size says)")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count(), help="parallel runs (default: all cores)"
    )
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="one setting of the study; may be repeated",
    )
    return parser


def _list_studies() -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for name, (_, title) in STUDIES.items():
        table.add_row(name, title)
    Console().print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code: 0 on success, 2 after a user error."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.study is None:
        _list_studies()
        return 0
    if options.out is None:
        parser.error("--out is required")
    for flag, number in (("seeds", options.seeds), ("processes", options.processes)):
        if number is not None and number < 1:
            parser.error(f"--{flag} must be >= 1, got {number}")
    progress = Console(stderr=True)
    context = StudyContext(options.out, options.processes or 1, options.data, progress)
    # Redirected to a file, tables take the width that they need.
    console = Console() if sys.stdout.isatty() else Console(width=160)
    try:
        for part in run_study(
            options.study, context, options.size, options.settings, options.seeds
        ):
            console.print(part, soft_wrap=isinstance(part, str), highlight=False)
    except UserError as error:
        print(error_line(error), file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    progress.print(f"wrote {options.out}", soft_wrap=True, highlight=False)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
