"""Commands that put models to use: export, serve, rank, predict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tfr_moe.commands.options import stderr


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

    path = export_run(run, out, data, version, stderr())
    stderr().print(f"wrote {path}", soft_wrap=True)


def serve(
    models: Annotated[Path, typer.Option("--models", help="folder of NAME/VERSION")],
    port: Annotated[int, typer.Option("--port", help="0 takes a free one")] = 8500,
    host: Annotated[str, typer.Option("--host", help="address to listen on")] = "127.0.0.1",
) -> None:
    """Serve exported models over gRPC, for development; production runs TF Serving."""
    from tfr_moe.serving.server import serve as run_server

    run_server(models, host, port)


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

    with progress_bar(stderr(), "scoring") as progress:
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
    stderr().print(text, soft_wrap=True, highlight=False)
