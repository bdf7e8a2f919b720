"""Commands that deploy and use models: export, serve, rank, predict, load-test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from tfr_moe.cli.options import (
    BatchSize,
    Data,
    Overwrite,
    Seed,
    SourceModules,
    reject_with,
    stderr,
)
from tfr_moe.errors import UserError

if TYPE_CHECKING:
    from tfr_moe.serving.client import Tls

TlsFlag = Annotated[
    bool, typer.Option("--tls", help="encrypt, with the system's root certificates")
]
TlsRoot = Annotated[
    Path | None, typer.Option("--tls-ca", help="PEM file with the server's root certificates")
]
TlsCertificate = Annotated[
    Path | None, typer.Option("--tls-cert", help="PEM file with this client's certificate")
]
TlsKey = Annotated[Path | None, typer.Option("--tls-key", help="PEM file with its key")]


def export(
    run: Annotated[Path, typer.Option("--run", help="a finished run")],
    out: Annotated[Path, typer.Option("--out", help="MODELS/NAME; a new version is added")],
    data: Annotated[
        Path | None,
        typer.Option("--data", help="data set for the warm-up; default: the run's"),
    ] = None,
    version: Annotated[
        int | None, typer.Option("--version", help="default: one more than the newest")
    ] = None,
    vectors: Annotated[
        bool,
        typer.Option("--vectors", help="export the item vectors of a click model, not its scores"),
    ] = False,
) -> None:
    """Export a run as a SavedModel for TensorFlow Serving.

    Example: tfr-moe export --run runs/moe --out models/shop
    """
    if vectors:
        reject_with("--vectors", {"--data": data, "--version": version})
        from tfr_moe.cli.prediction import export_vectors

        stderr().print(f"wrote {export_vectors(run, out)}", soft_wrap=True)
        return
    from tfr_moe.serving.export import export_run

    path = export_run(run, out, data, version, stderr())
    stderr().print(f"wrote {path}", soft_wrap=True)


def serve(
    models: Annotated[Path, typer.Option("--models", help="folder of NAME/VERSION")],
    port: Annotated[
        int, typer.Option("--port", help="0 picks a free one", min=0, max=65535)
    ] = 8500,
    host: Annotated[str, typer.Option("--host", help="address to listen on")] = "127.0.0.1",
) -> None:
    """Serve exported models over gRPC, for development.

    Use TensorFlow Serving in production.

    Example: tfr-moe serve --models models
    """
    from tfr_moe.serving.dev_server import serve as run_server

    run_server(models, host, port)


def rank(
    target: Annotated[str, typer.Option("--target", help="HOST:PORT of a server")],
    model: Annotated[str, typer.Option("--model", help="name of the model on the server")],
    request: Annotated[
        Path, typer.Option("--request", help='JSON: {"context": ..., "items": [...]}')
    ],
    schema: Annotated[
        Path | None,
        typer.Option("--schema", help="schema.json of the data; default: the server's"),
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", help="seconds; inf: no deadline")] = 5.0,
    version: Annotated[
        int | None, typer.Option("--version", help="default: the newest", min=0)
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
    """Rank the items of a request through a server.

    Example: tfr-moe rank --target localhost:8500 --model shop --request request.json
    """
    from tfr_moe.schema import FeatureSchema
    from tfr_moe.serving.client import RankingClient, load_request
    from tfr_moe.serving.client.render import render, to_json

    request_schema = None if schema is None else FeatureSchema.load(schema)
    context, items = load_request(request, request_schema)
    with RankingClient(
        target,
        model,
        request_schema,
        timeout=timeout,
        version=version,
        label=label,
        tls=_tls(tls, tls_ca, tls_cert, tls_key),
        metadata=_metadata(header or []),
    ) as client:
        ranking = client.rank(context, items)
    if as_json:
        print(json.dumps(to_json(ranking, items), indent=1))
    else:
        console = Console()
        console.print(render(ranking, items, console.width))


def _tls(wanted: bool, root: Path | None, certificate: Path | None, key: Path | None) -> Tls | None:
    from tfr_moe.serving.client import Tls

    if not (wanted or root or certificate or key):
        return None
    return Tls(root, certificate, key)


def _metadata(headers: list[str]) -> dict[str, str]:
    metadata = {}
    for header in headers:
        key, separator, value = header.partition("=")
        if not separator or not key:
            raise UserError(f"--header {header!r}: must be KEY=VALUE")
        metadata[key.lower()] = value
    return metadata


def load_test(
    target: Annotated[str, typer.Option("--target", help="HOST:PORT of a server")],
    model: Annotated[str, typer.Option("--model", help="name of the model on the server")],
    data: Data,
    split: Annotated[str, typer.Option("--split", help="split whose lists are sent")] = "test",
    lists: Annotated[int, typer.Option("--lists", help="maximum number of lists", min=1)] = 1000,
    rate: Annotated[
        list[float] | None, typer.Option("--rate", help="requests per second; repeatable")
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", help="of each run")] = 10.0,
    signature: Annotated[str, typer.Option("--signature", help="rank or serving_default")] = "rank",
    timeout: Annotated[float, typer.Option("--timeout", help="seconds")] = 5.0,
    seed: Seed = 0,
    tls: TlsFlag = False,
    tls_ca: TlsRoot = None,
    tls_cert: TlsCertificate = None,
    tls_key: TlsKey = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="file for the numbers")] = None,
) -> None:
    """Measure the latency of a server at given request rates.

    Example: tfr-moe load-test --target localhost:8500 --model shop --data data
    """
    from tfr_moe.serving.load_test import data_requests, latency_table, run_load_test
    from tfr_moe.utils.console import progress_bar
    from tfr_moe.utils.io import write_json

    if signature not in ("rank", "serving_default"):
        raise UserError(f"--signature {signature!r}: must be rank or serving_default")
    secure = _tls(tls, tls_ca, tls_cert, tls_key)
    requests = data_requests(data, split, lists)
    with progress_bar(stderr(), "runs") as progress:
        report = run_load_test(
            target,
            model,
            requests,
            rate or [20.0],
            seconds,
            signature=signature,
            timeout=timeout,
            seed=seed,
            tls=secure,
            progress=progress,
        )
    Console().print(latency_table(report))
    if json_file is not None:
        write_json(json_file, report)


def predict(
    context: typer.Context,
    input_pattern: Annotated[
        str, typer.Option("--input", help="a table with one row per item: file or pattern")
    ],
    out: Annotated[
        Path, typer.Option("--out", help="output file: .csv, .jsonl, either .gz, or .parquet")
    ],
    run: Annotated[Path | None, typer.Option("--run", help="a finished run")] = None,
    model: Annotated[
        Path | None, typer.Option("--model", help="an exported model: MODELS/NAME")
    ] = None,
    schema: Annotated[
        Path | None, typer.Option("--schema", help="schema of the rows; default: the model's")
    ] = None,
    item_id: Annotated[
        str | None,
        typer.Option("--item-id", help="column with the item's ID; default: item_id or alike"),
    ] = None,
    source: Annotated[
        str | None, typer.Option("--source", help="kind of input, as for build; default: a table")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="an option of the source, key=value")
    ] = None,
    source_modules: SourceModules = None,
    vectors: Annotated[
        str | None,
        typer.Option(
            "--vectors",
            help="write vectors to a column of this name, by a model of `export --vectors`",
        ),
    ] = None,
    batch_size: BatchSize = 128,
    overwrite: Overwrite = False,
) -> None:
    """Score and rank the items of a table.

    Options of Apache Beam may follow after --.

    Example: tfr-moe predict --run runs/moe --input items.csv --out scores.csv
    """
    from tfr_moe.utils.io import check_free_file

    check_free_file(out, overwrite)
    stderr().print(f"loading {run or model}", highlight=False, soft_wrap=True, markup=False)

    from tfr_moe.cli.data import loss_lines
    from tfr_moe.cli.prediction import predict as run_predict
    from tfr_moe.utils.console import progress_bar

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
            progress,
            source_modules or [],
            vectors,
        )
    text = f"wrote {out}: {rows['written']} of {rows['read']} rows in {rows['lists']} lists"
    if rows["rejected"] or rows["cut"]:
        text += f"; {rows['rejected']} rows rejected (see {out}.rejects.jsonl), {rows['cut']} cut"
    for line in (text, *loss_lines("rejected", rows["rejects"])):
        stderr().print(line, soft_wrap=True, highlight=False, markup=False)
