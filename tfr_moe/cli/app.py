"""The `tfr-moe` command: its commands, and how it ends on an error."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from tfr_moe import __version__
from tfr_moe._compat import load_for_a_command
from tfr_moe.cli import daily, data, models, reports, serving
from tfr_moe.cli.options import BeamCommand, Seed, flag
from tfr_moe.errors import EXIT_INTERRUPTED, EXIT_USAGE, UserError, error_line
from tfr_moe.utils.failures import file_failure

app = typer.Typer(
    name="tfr-moe",
    help="Category-gated mixture-of-experts ranking: logs to data, training, evaluation, serving.",
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=True,
    rich_markup_mode=None,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"tfr-moe {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, flag("print the version", "--version", callback=_show_version)
    ] = False,
) -> None:
    pass


def demo(
    out: Annotated[Path, flag("folder to create")] = Path("demo"),
    sessions: Annotated[int, flag("number of lists")] = 24_000,
    seed: Seed = 0,
) -> None:
    """Run the complete workflow once on synthetic logs.

    Logs, data set, four models, comparison, export, server, one query.

    Example: tfr-moe demo --out demo
    """
    from tfr_moe.cli.demo import run_demo

    run_demo(out, sessions, seed)


app.command()(data.synth)
app.command(cls=data.BuildCommand)(data.build)
app.command()(data.join_days)
app.command()(daily.check)
app.command()(daily.drift)
app.command()(data.schema)
app.command()(models.train)
app.command()(models.evaluate)
app.command()(reports.compare)
app.command()(reports.tune)
app.command()(reports.report)
app.command()(reports.explain)
app.command()(serving.export)
app.command()(serving.serve)
app.command()(serving.rank)
app.command(cls=BeamCommand)(serving.predict)
app.command()(serving.load_test)
app.command()(daily.publish)
app.command()(data.rerank_data)
app.command()(demo)
app.command()(models.models)
app.command()(models.losses)
app.command()(models.metrics)
app.command()(models.settings)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line.

    Exits with 0 on success, with 2 and one line after a user error or one of files or the disk,
    with 3 after a check that did not pass.
    """
    # Hides the notices of the runtimes of TensorFlow and gRPC; their errors are reported as ours.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    load_for_a_command("pandas", "scipy", "setuptools", "PIL", "sklearn")
    # Frameworks make a million objects that stay; to search them for garbage takes half a second.
    gc.set_threshold(100_000, *gc.get_threshold()[1:])
    # The search at the exit takes longer still, and finds only what the system frees anyway.
    atexit.register(gc.freeze)
    command = typer.main.get_command(app)
    args = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = command.main(
            args=args or ["--help"],
            prog_name="tfr-moe",
            standalone_mode=False,
        )
    except UserError as error:
        _fail(error)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except Exception as error:
        # Click's own errors (unknown option, missing value) share no importable base across
        # the versions of typer, which may carry its own copy of click.
        if not hasattr(error, "format_message"):
            failure = file_failure(error)
            if failure is None:
                raise
            _fail(failure)
        path = getattr(getattr(error, "ctx", None), "command_path", "tfr-moe")
        _fail(f"{error.format_message()} (see {path} --help)")
    if code == EXIT_INTERRUPTED:  # from here or from typer, which prints nothing
        print("interrupted", file=sys.stderr)
    raise SystemExit(code if isinstance(code, int) else 0)


def _fail(error: object) -> NoReturn:
    print(error_line(error), file=sys.stderr)
    raise SystemExit(EXIT_USAGE)
