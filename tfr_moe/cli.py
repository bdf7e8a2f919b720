"""The `tfr-moe` command: thin commands over the parts, which are imported when they are needed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core
from rich.console import Console

from tfr_moe import __version__
from tfr_moe.errors import UserError

app = typer.Typer(
    name="tfr-moe",
    help="Category-gated mixture-of-experts ranking: logs to data, training, evaluation, serving.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

Data = Annotated[Path, typer.Option("--data", help="data-set folder made by `tfr-moe build`")]
Seed = Annotated[int, typer.Option("--seed", help="seed of everything random", min=0)]


def _stderr() -> Console:
    return Console(stderr=True)


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


@app.command()
def synth(
    out: Annotated[Path, typer.Option("--out", help="folder to make")],
    sessions: Annotated[int, typer.Option("--sessions", help="number of lists")] = 4000,
    seed: Seed = 0,
    category_strength: Annotated[
        float, typer.Option("--category-strength", help="0: all categories alike, 1: most unlike")
    ] = 1.0,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="any other option of the generator, key=value; see docs/data.md"
        ),
    ] = None,
) -> None:
    """Write synthetic search logs and their schema."""
    from tfr_moe.progress import progress_bar
    from tfr_moe.synthetic import generate, parse_options

    options = parse_options(
        settings or [], sessions=sessions, seed=seed, category_strength=category_strength
    )
    with progress_bar(_stderr(), "sessions") as progress:
        generate(out, options, progress)
    _stderr().print(
        f"wrote {out}: logs of {options.sessions} sessions and schema.yaml", soft_wrap=True
    )


class _BuildCommand(typer.core.TyperCommand):
    """`build SOURCE --help` tells the options of that source, `build --help` the sources there are."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta["source"] = next((arg for arg in args[:1] if not arg.startswith("-")), "all")
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        from tfr_moe.beam.sources.help import text

        formatter.write(f"\n{text(ctx.meta['source'])}\n")


@app.command(
    cls=_BuildCommand,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": False},
)
def build(
    context: typer.Context,
    source: Annotated[str, typer.Argument(help="kind of input, such as search-logs")],
    input_pattern: Annotated[str, typer.Option("--input", help="file or pattern: 'logs/*.csv.gz'")],
    out: Annotated[Path, typer.Option("--out", help="data-set folder to make")],
    schema: Annotated[
        Path | None,
        typer.Option("--schema", help="FeatureSchema as YAML or JSON; some sources have their own"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="an option of the source, key=value; see build SOURCE --help"),
    ] = None,
    split: Annotated[
        str | None, typer.Option("--split", help="time or hash; by default time if there is one")
    ] = None,
    validation_fraction: Annotated[
        float, typer.Option("--validation-fraction", help="share of lists")
    ] = 0.1,
    test_fraction: Annotated[float, typer.Option("--test-fraction", help="share of lists")] = 0.1,
    max_list_size: Annotated[
        int, typer.Option("--max-list-size", help="longer lists are cut, and counted")
    ] = 200,
    min_list_size: Annotated[
        int, typer.Option("--min-list-size", help="shorter lists are left out, and counted")
    ] = 1,
    num_shards: Annotated[
        int | None, typer.Option("--num-shards", help="training files; by default 8 or more")
    ] = None,
    seed: Seed = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace --out")] = False,
) -> None:
    """Turn logs into a data set; options of Apache Beam may follow after --."""
    from tfr_moe.beam.pipeline import BuildOptions
    from tfr_moe.beam.pipeline import build as run_build
    from tfr_moe.progress import progress_bar

    options = BuildOptions(
        source=source,
        input=input_pattern,
        schema=schema,
        out=out,
        split=split,
        validation_fraction=validation_fraction,
        test_fraction=test_fraction,
        max_list_size=max_list_size,
        min_list_size=min_list_size,
        num_shards=num_shards,
        seed=seed,
        overwrite=overwrite,
        settings=tuple(settings or ()),
        beam_args=tuple(context.args),
    )
    with progress_bar(_stderr(), "building") as progress:
        manifest = run_build(options, lambda stage, *amounts: progress(*amounts, stage))
    _stderr().print(_build_summary(out, manifest), soft_wrap=True, highlight=False)


def _build_summary(out: Path, manifest: dict[str, Any]) -> str:
    rows = manifest["rows"]
    splits = ", ".join(f"{name} {part['lists']}" for name, part in manifest["splits"].items())
    text = f"wrote {out}: {rows['written']} of {rows['read']} rows in lists: {splits}"
    if rows["rejected"] or rows["cut"]:
        text += f"; {rows['rejected']} rows rejected (see rejects-*.jsonl), {rows['cut']} cut"
    return text


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": False})
def categories(
    context: typer.Context,
    data: Data,
    out: Annotated[Path, typer.Option("--out", help="folder to make")],
    brand: Annotated[
        str | None,
        typer.Option("--brand", help="the items' brand feature, to see its concentration"),
    ] = None,
    split: Annotated[str, typer.Option("--split", help="train, validation or test")] = "train",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace --out")] = False,
) -> None:
    """Show which features tell the chosen items apart in each category, and how few brands sell."""
    from tfr_moe.beam.categories import analyse

    found = analyse(data, out, brand, split, overwrite, tuple(context.args))
    levels = found["feature_importance"]
    _stderr().print(
        f"wrote {out}: {len(levels['top'])} top and {len(levels['sub'])} sub-categories",
        soft_wrap=True,
        highlight=False,
    )


@app.command()
def train(
    data: Data,
    out: Annotated[Path, typer.Option("--out", help="folder of the run")],
    model: Annotated[str | None, typer.Option("--model", help="dnn, moe, adv_hsc_moe, ...")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="settings as YAML")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="one setting, key=value; may be repeated")
    ] = None,
) -> None:
    """Train a model; the same command resumes a run that was killed."""
    from tfr_moe.config import load_config

    chosen = {} if model is None else {"model": model}
    run_config = load_config(config, settings or [], **chosen)
    from tfr_moe.training import train as run_training

    result = run_training(data, out, run_config, _stderr())
    best = ", ".join(f"{k[4:]} {v:.4f}" for k, v in result["best"].items() if k.startswith("val_"))
    _stderr().print(
        f"wrote {out}: best of {result['epochs']} epochs is {result['best_epoch']} "
        f"(validation: {best})",
        soft_wrap=True,
        highlight=False,
    )


@app.command()
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
    from tfr_moe.evaluation.report import to_json
    from tfr_moe.evaluation.tables import render

    found = evaluate_runs(data, run, baseline, split, metric, policy, batch_size, _stderr())
    render(found, Console())
    if json_file is not None:
        _write(json_file, json.dumps(to_json(found), indent=1) + "\n", "--json")


def _write(path: Path, text: str, flag: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{flag} {path}: cannot be written ({error.strerror})") from error


@app.command()
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

    trials = run_sweep(data, out, sweep_config, _stderr(), workers, role)
    failed = sum(trial.status == "failed" for trial in trials)
    if role.kind != "worker":
        _show_sweep(out, retrain)
    _stderr().print(
        f"wrote {out}: {len(trials)} trials" + (f", {failed} of them failed" if failed else ""),
        soft_wrap=True,
        highlight=False,
    )


@app.command()
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

        print_retrained(retrain_and_test(sweep, retrain, _stderr()), Console())
        page = write_report(sweep)
    _stderr().print(f"wrote {page}", soft_wrap=True, highlight=False)


@app.command()
def export(
    run: Annotated[Path, typer.Option("--run", help="a finished run")],
    out: Annotated[Path, typer.Option("--out", help="MODELS/NAME; a new version appears below it")],
    data: Annotated[
        Path | None,
        typer.Option("--data", help="data set for the warm-up; by default the run's own"),
    ] = None,
    version: Annotated[
        int | None, typer.Option("--version", help="by default one more than the newest")
    ] = None,
) -> None:
    """Export a run as a SavedModel for TF Serving."""
    from tfr_moe.release import export_run

    path = export_run(run, out, data, version, _stderr())
    _stderr().print(f"wrote {path}", soft_wrap=True)


@app.command()
def serve(
    models: Annotated[Path, typer.Option("--models", help="folder of NAME/VERSION")],
    port: Annotated[int, typer.Option("--port", help="0 takes a free one")] = 8500,
    host: Annotated[str, typer.Option("--host", help="address to listen on")] = "127.0.0.1",
) -> None:
    """Serve exported models over gRPC, for development; production runs TF Serving."""
    from tfr_moe.serving.server import serve as run_server

    run_server(models, host, port)


@app.command()
def rank(
    target: Annotated[str, typer.Option("--target", help="HOST:PORT of a server")],
    model: Annotated[str, typer.Option("--model", help="name of the model on the server")],
    request: Annotated[
        Path, typer.Option("--request", help='JSON: {"context": ..., "items": [...]}')
    ],
    schema: Annotated[
        Path | None,
        typer.Option("--schema", help="schema.json of the data; by default the server is asked"),
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", help="seconds")] = 5.0,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a table")] = False,
) -> None:
    """Ask a server to rank the items of a request."""
    from tfr_moe.schema import FeatureSchema
    from tfr_moe.serving.client import RankingClient
    from tfr_moe.serving.render import render, to_json
    from tfr_moe.serving.request import load_request

    given = None if schema is None else FeatureSchema.load(schema)
    asked = load_request(request, given)
    with RankingClient(target, model, given, timeout=timeout) as client:
        ranking = client.rank(asked.context, asked.items)
    if as_json:
        print(json.dumps(to_json(ranking, asked.items), indent=1))
    else:
        console = Console()
        console.print(render(ranking, asked.items, console.width))


@app.command()
def reproduce(
    study: Annotated[str, typer.Argument(help="mmoe-synthetic or census")],
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

    place = Place(out, processes or os.cpu_count() or 1, data, _stderr())
    # Into a file the tables go as wide as they are.
    console = Console() if sys.stdout.isatty() else Console(width=160)
    for shown in run_study(study, place, size, settings or [], seeds):
        console.print(shown, soft_wrap=isinstance(shown, str), highlight=False)
    _stderr().print(f"wrote {out}: results.json and plots", soft_wrap=True, highlight=False)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": False})
def predict(
    context: typer.Context,
    input_pattern: Annotated[
        str, typer.Option("--input", help="a table, or lists in .tfrecord.gz: file or pattern")
    ],
    out: Annotated[
        Path, typer.Option("--out", help="file to make: .csv, .jsonl, either .gz, or .parquet")
    ],
    run: Annotated[Path | None, typer.Option("--run", help="a finished run")] = None,
    model: Annotated[Path | None, typer.Option("--model", help="or MODELS/NAME")] = None,
    schema: Annotated[
        Path | None, typer.Option("--schema", help="schema of the rows; by default the model's")
    ] = None,
    item_id: Annotated[
        str | None, typer.Option("--item-id", help="column that tells items apart")
    ] = None,
    source: Annotated[
        str | None, typer.Option("--source", help="kind of input, as for build; by default a table")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="an option of the source, key=value")
    ] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", help="lists per batch", min=1)] = 128,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace --out")] = False,
) -> None:
    """Score and rank the items of a table; options of Apache Beam may follow after --."""
    from tfr_moe.prediction import predict as run_predict
    from tfr_moe.progress import progress_bar

    with progress_bar(_stderr(), "scoring") as progress:
        rows = run_predict(
            run,
            model,
            input_pattern,
            out,
            schema,
            item_id,
            source,
            settings or [],
            batch_size,
            overwrite,
            context.args,
            lambda stage, *amounts: progress(*amounts, stage),
        )
    text = f"wrote {out}: {rows['written']} of {rows['read']} rows in {rows['lists']} lists"
    if rows["rejected"] or rows["cut"]:
        text += f"; {rows['rejected']} rows rejected (see {out}.rejects.jsonl), {rows['cut']} cut"
    _stderr().print(text, soft_wrap=True, highlight=False)


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="folder to make")] = Path("demo"),
    sessions: Annotated[int, typer.Option("--sessions", help="number of lists")] = 12_000,
    seed: Seed = 0,
) -> None:
    """Run the whole way once: logs, data, three models, comparison, export, server, query."""
    from tfr_moe.demo import run_demo

    run_demo(out, sessions, seed)


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
        _fail(str(error))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    except Exception as error:
        # Click's own errors (unknown option, missing value) share no importable base across
        # the versions of typer, which may carry its own copy of click.
        if not hasattr(error, "format_message"):
            raise
        path = getattr(getattr(error, "ctx", None), "command_path", "tfr-moe")
        _fail(f"{error.format_message()} (see {path} --help)")
    raise SystemExit(code if isinstance(code, int) else 0)


def _fail(message: str) -> None:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    raise SystemExit(2)


if __name__ == "__main__":
    main()
