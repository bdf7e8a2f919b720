"""The `tfr-moe` command: the commands put together, and what a mistake looks like."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from tfr_moe import __version__
from tfr_moe.commands import attention, data, explain, models, queries, reports, serving, sweeps
from tfr_moe.commands.options import Seed
from tfr_moe.errors import INTERRUPTED, MISTAKE, UserError, error_line

app = typer.Typer(
    name="tfr-moe",
    help="Category-gated mixture-of-experts ranking: logs to data, training, evaluation, serving.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"tfr-moe {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, help="print the version")
    ] = False,
) -> None:
    pass


def demo(
    out: Annotated[Path, typer.Option("--out", help="folder to make")] = Path("demo"),
    sessions: Annotated[int, typer.Option("--sessions", help="number of lists")] = 12_000,
    seed: Seed = 0,
) -> None:
    """Run the whole way once: logs, data, three models, comparison, export, server, query."""
    from tfr_moe.demo import run_demo

    run_demo(out, sessions, seed)


# Commands that pass what they don't know on to Apache Beam.
_OPEN = {"allow_extra_args": True, "ignore_unknown_options": False}

app.command()(data.synth)
app.command()(data.synth_letor)
app.command(cls=data.BuildCommand, context_settings=_OPEN)(data.build)
app.command(context_settings=_OPEN)(data.categories)
app.command()(queries.train_queries)
app.command()(data.rerank_data)
app.command()(models.train)
app.command()(models.evaluate)
app.command()(reports.report)
app.command()(explain.explain)
app.command()(sweeps.tune)
app.command()(sweeps.tune_report)
app.command()(serving.export)
app.command()(serving.serve)
app.command()(serving.rank)
app.command()(serving.load_test)
app.command(context_settings=_OPEN)(serving.predict)
app.command()(attention.attention)
app.command()(attention.export_vectors)
app.command(context_settings=_OPEN)(attention.join_vectors)
app.command()(models.reproduce)
app.command()(demo)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line: exit code 0 on success, 2 for a mistake of the user's, in one line."""
    # Notices of TensorFlow's runtime are not progress.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    command = typer.main.get_command(app)
    try:
        code = command.main(
            args=list(sys.argv[1:] if arguments is None else arguments),
            prog_name="tfr-moe",
            standalone_mode=False,
        )
    except UserError as error:
        _fail(error)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:
        # Click's own errors (unknown option, missing value) share no importable base across
        # the versions of typer, which may carry its own copy of click.
        if not hasattr(error, "format_message"):
            raise
        path = getattr(getattr(error, "ctx", None), "command_path", "tfr-moe")
        _fail(f"{error.format_message()} (see {path} --help)")
    if code == INTERRUPTED:  # from here or from typer, which says nothing
        print("interrupted", file=sys.stderr)
    raise SystemExit(code if isinstance(code, int) else 0)


def _fail(error: object) -> NoReturn:
    print(error_line(error), file=sys.stderr)
    raise SystemExit(MISTAKE)


if __name__ == "__main__":
    main()
