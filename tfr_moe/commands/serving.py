"""Commands that put models to use: export, serve, rank, predict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from tfr_moe.commands.options import Data, Seed, stderr
from tfr_moe.errors import UserError
from tfr_moe.serving.defaults import DEFAULT_BATCH_SIZE, DEFAULT_PORT

if TYPE_CHECKING:
    from tfr_moe.serving.channel import Tls

TlsFlag = Annotated[bool, typer.Option("--tls", help="encrypt, by the system's certificates")]
TlsRoot = Annotated[
    Path | None, typer.Option("--tls-ca", help="PEM file to check the server's certificate by")
]
TlsCertificate = Annotated[
    Path | None, typer.Option("--tls-cert", help="PEM file with this client's certificate")
]
TlsKey = Annotated[Path | None, typer.Option("--tls-key", help="PEM file with its key")]


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
    precision: Annotated[
        str, typer.Option("--precision", help="of the towers: float32 or bfloat16")
    ] = "float32",
    list_size: Annotated[
        int | None,
        typer.Option("--list-size", help="fixed size of lists, towers compiled by XLA: for GPUs"),
    ] = None,
    fold_gate: Annotated[
        bool, typer.Option("--fold-gate", help="look experts up in a table by category")
    ] = False,
    categories: Annotated[
        Path | None,
        typer.Option("--categories", help="file of categories, one a line: serve these alone"),
    ] = None,
    unknown_categories: Annotated[
        bool,
        typer.Option(
            "--unknown-categories", help="answer others as unknown ones instead of refusing them"
        ),
    ] = False,
) -> None:
    """Export a run as a SavedModel for TF Serving."""
    from tfr_moe.release import export_run
    from tfr_moe.variants import ExportOptions, as_precision, read_categories

    options = ExportOptions(
        as_precision(precision),
        list_size,
        fold_gate,
        () if categories is None else read_categories(categories),
        unknown_categories,
    )
    path = export_run(run, out, data, version, stderr(), options)
    stderr().print(f"wrote {path}", soft_wrap=True)


def serve(
    models: Annotated[Path, typer.Option("--models", help="folder of NAME/VERSION")],
    port: Annotated[int, typer.Option("--port", help="0 takes a free one")] = DEFAULT_PORT,
    host: Annotated[str, typer.Option("--host", help="address to listen on")] = "127.0.0.1",
    batch_size: Annotated[
        int, typer.Option("--batch-size", help="waiting lists run together; 1: never", min=1)
    ] = DEFAULT_BATCH_SIZE,
    metrics_port: Annotated[
        int | None,
        typer.Option("--metrics-port", help="answer Prometheus there", min=0, max=65535),
    ] = None,
) -> None:
    """Serve exported models over gRPC, for development; production runs TF Serving."""
    from tfr_moe.serving.server import serve as run_server

    run_server(models, host, port, batch_size=batch_size, metrics_port=metrics_port)


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
    version: Annotated[
        int | None, typer.Option("--version", help="by default the newest", min=0)
    ] = None,
    label: Annotated[
        str | None, typer.Option("--label", help="or the version with this label")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", help="metadata to send, KEY=VALUE; repeatable")
    ] = None,
    tls: TlsFlag = False,
    tls_ca: TlsRoot = None,
    tls_cert: TlsCertificate = None,
    tls_key: TlsKey = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a table")] = False,
) -> None:
    """Ask a server to rank the items of a request."""
    from tfr_moe.schema import FeatureSchema
    from tfr_moe.serving.client import RankingClient
    from tfr_moe.serving.render import render, to_json
    from tfr_moe.serving.request import load_request

    given = None if schema is None else FeatureSchema.load(schema)
    asked = load_request(request, given)
    with RankingClient(
        target,
        model,
        given,
        timeout=timeout,
        version=version,
        label=label,
        tls=_tls(tls, tls_ca, tls_cert, tls_key),
        metadata=_metadata(header or []),
    ) as client:
        ranking = client.rank(asked.context, asked.items)
    if as_json:
        print(json.dumps(to_json(ranking, asked.items), indent=1))
    else:
        console = Console()
        console.print(render(ranking, asked.items, console.width))


def _tls(wanted: bool, root: Path | None, certificate: Path | None, key: Path | None) -> Tls | None:
    from tfr_moe.serving.channel import Tls

    if not (wanted or root or certificate or key):
        return None
    return Tls(root, certificate, key)


def _metadata(headers: list[str]) -> dict[str, str]:
    found = {}
    for header in headers:
        key, separator, value = header.partition("=")
        if not separator or not key:
            raise UserError(f"--header {header!r}: must be KEY=VALUE")
        found[key.lower()] = value
    return found


def load_test(
    target: Annotated[str, typer.Option("--target", help="HOST:PORT of a server")],
    model: Annotated[str, typer.Option("--model", help="name of the model on the server")],
    data: Data,
    against: Annotated[
        str | None, typer.Option("--against", help="HOST:PORT of another server to compare with")
    ] = None,
    against_model: Annotated[
        str | None, typer.Option("--against-model", help="another model; by default the same")
    ] = None,
    split: Annotated[str, typer.Option("--split", help="lists to ask for")] = "test",
    lists: Annotated[int, typer.Option("--lists", help="at most so many", min=1)] = 1000,
    rate: Annotated[
        list[float] | None, typer.Option("--rate", help="requests a second; repeatable")
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", help="of each run")] = 10.0,
    rounds: Annotated[int, typer.Option("--rounds", help="runs of each rate", min=1)] = 3,
    signature: Annotated[str, typer.Option("--signature", help="rank or serving_default")] = "rank",
    timeout: Annotated[float, typer.Option("--timeout", help="seconds")] = 5.0,
    seed: Seed = 0,
    tls: TlsFlag = False,
    tls_ca: TlsRoot = None,
    tls_cert: TlsCertificate = None,
    tls_key: TlsKey = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the numbers here")] = None,
    plot_file: Annotated[
        Path | None, typer.Option("--plot", help="draw the latencies: .png, .svg or .pdf")
    ] = None,
) -> None:
    """Measure latency and throughput of a server, or compare two, at given rates of requests."""
    from tfr_moe.folders import write_json
    from tfr_moe.progress import progress_bar
    from tfr_moe.serving import loadtest as load

    if signature not in ("rank", "serving_default"):
        raise UserError(f"--signature {signature!r}: must be rank or serving_default")
    if against_model is not None or against is not None:
        other = (against or target, against_model or model)
        if other == (target, model):
            raise UserError("--against and --against-model name the target itself")
    secure = _tls(tls, tls_ca, tls_cert, tls_key)
    targets = [load.Target(target, model, f"{model} at {target}", secure)]
    if against_model is not None or against is not None:
        targets.append(load.Target(*other, f"{other[1]} at {other[0]}", secure))
    options = load.LoadOptions(tuple(rate or (20.0,)), seconds, rounds, signature, timeout, seed)
    requests = load.data_requests(data, split, lists)
    with progress_bar(stderr(), "runs") as progress:
        runs = load.run_load_test(targets, requests, options, progress)
    found = load.report(runs, targets, requests, options)
    console = Console()
    for part in load.tables(found):
        console.print(part)
    if json_file is not None:
        write_json(json_file, found)
    if plot_file is not None:
        load.plot(runs, plot_file)


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
