"""Commands that deploy and use models: export, serve, rank, predict, load-test."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.text import Text

from tfr_moe.cli.options import (
    BatchSize,
    Data,
    JsonFile,
    Overwrite,
    Run,
    Seed,
    beam_args,
    flag,
    note,
    stderr,
    write_numbers,
)
from tfr_moe.utils.console import TableColumn, fitted_table, progress_bar
from tfr_moe.utils.settings import split_pair

if TYPE_CHECKING:
    from tfr_moe.serving.client import Expert, Ranking

Target = Annotated[str, flag("HOST:PORT of a server", "--target")]
Served = Annotated[str, flag("name of the model on the server", "--model")]


def export(
    run: Run,
    out: Annotated[Path, flag("folder MODELS/NAME, to which a new version is added")],
    data: Annotated[Path | None, flag("data set for the warm-up; default: the run's")] = None,
    version: Annotated[int | None, flag("version number; default: the newest plus 1")] = None,
) -> None:
    """Export a run as a SavedModel for TensorFlow Serving.

    Example: tfr-moe export --run runs/moe --out models/shop
    """
    from tfr_moe.serving.export import export_run

    note(f"wrote {export_run(run, out, data, version, stderr())}")


def serve(
    models: Annotated[Path, flag("folder with exported models as NAME/VERSION")],
    port: Annotated[int, flag("port to listen on; 0: any free port", min=0, max=65535)] = 8500,
    host: Annotated[str, flag("address to listen on")] = "127.0.0.1",
) -> None:
    """Serve exported models over gRPC, for development.

    Use TensorFlow Serving in production.

    Example: tfr-moe serve --models models
    """
    from tfr_moe.serving.dev_server import serve as run_server

    run_server(models, host, port)


def rank(
    target: Target,
    model: Served,
    request: Annotated[Path, flag('JSON: {"context": ..., "items": [...]}')],
    schema: Annotated[Path | None, flag("schema.json of the data; default: the server's")] = None,
    timeout: Annotated[float, flag("deadline in seconds; inf: none")] = 5.0,
    version: Annotated[
        int | None, flag("version of the model; default: the newest", min=0, max=2**63 - 1)
    ] = None,
    label: Annotated[str | None, flag("label of the version, instead of --version")] = None,
    header: Annotated[list[str] | None, flag("metadata to send, key=value; repeatable")] = None,
    as_json: Annotated[bool, flag("print JSON instead of a table", "--json")] = False,
) -> None:
    """Rank the items of a request by a server.

    Example: tfr-moe rank --target localhost:8500 --model shop --request request.json
    """
    from tfr_moe.schema import FeatureSchema
    from tfr_moe.serving.client import RankingClient, load_request

    request_schema = None if schema is None else FeatureSchema.load(schema)
    pairs = (split_pair(pair, "--header") for pair in header or [])
    context, items = load_request(request, request_schema)
    with RankingClient(
        target,
        model,
        request_schema,
        timeout=timeout,
        version=version,
        label=label,
        metadata=dict(pairs),
    ) as client:
        ranking = client.rank(context, items)
    if as_json:
        print(json.dumps(ranking_json(ranking, items), indent=1))
    else:
        console = Console()
        console.print(ranking_table(ranking, items, console.width))


def ranking_table(
    ranking: Ranking, items: Sequence[Mapping[str, Any]], width: int | None = None
) -> Group:
    """A table of rank, score and fields of each item that fit into `width`, and the experts."""
    ranked = ranking.items
    columns = [
        TableColumn("rank", [str(rank) for rank in range(1, len(ranked) + 1)]),
        TableColumn("item", [str(item.index) for item in ranked]),
        TableColumn("score", [f"{item.score:.4f}" for item in ranked]),
    ]
    for task in ranked[0].tasks if ranked else ():
        columns.append(TableColumn(f"{task} score", [f"{item.tasks[task]:.4f}" for item in ranked]))
    for name in dict.fromkeys(name for item in items for name in item):
        values = [items[item.index].get(name) for item in ranked]
        numeric = all(value is None or isinstance(value, (int, float)) for value in values)
        columns.append(TableColumn(name, list(map(_text, values)), numeric))
    if any(item.experts for item in ranked):
        experts = [_expert_list(item.experts) for item in ranked]
        columns.append(TableColumn("experts (weight)", experts, numeric=False))
    title = f"{ranking.model} version {ranking.version}"
    parts: list[RenderableType] = [fitted_table(columns, 3, width, title)]
    if ranking.experts:
        parts.append(Text(f"experts (weight): {_expert_list(ranking.experts)}"))
    for task, of_task in ranking.task_experts.items():
        parts.append(Text(f"{task} experts (weight): {_expert_list(of_task)}"))
    return Group(*parts)


def ranking_json(ranking: Ranking, items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The answer as plain data; its items have their rank, their fields, and no empty entries."""
    answer = asdict(ranking)
    answer["items"] = [
        {
            "rank": rank,
            **{name: value for name, value in item.items() if value not in ((), {})},
            "item": dict(items[item["index"]]),
        }
        for rank, item in enumerate(answer["items"], start=1)
    ]
    return answer


def _expert_list(experts: Sequence[Expert]) -> str:
    return ", ".join(f"{expert.id} ({expert.weight:.2f})" for expert in experts)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (list, tuple)):
        return " ".join(_text(part) for part in value)
    return str(value)


def load_test(
    target: Target,
    model: Served,
    data: Data,
    split: Annotated[str, flag("split whose lists are sent as requests")] = "test",
    lists: Annotated[int, flag("maximum number of lists", min=1)] = 1000,
    rate: Annotated[
        list[float] | None, flag("requests per second; repeatable; default: 20")
    ] = None,
    seconds: Annotated[float, flag("duration at each rate")] = 10.0,
    timeout: Annotated[float, flag("deadline of a request in seconds")] = 5.0,
    seed: Seed = 0,
    json_file: JsonFile = None,
) -> None:
    """Measure the latency of a server at given request rates.

    Example: tfr-moe load-test --target localhost:8500 --model shop --data data
    """
    from tfr_moe.serving.load_test import data_requests, latency_table, run_load_test

    requests = data_requests(data, split, lists)
    with progress_bar(stderr(), "runs") as progress:
        report = run_load_test(
            target,
            model,
            requests,
            rate or [20.0],
            seconds,
            timeout=timeout,
            seed=seed,
            progress=progress,
        )
    Console().print(latency_table(report))
    write_numbers(json_file, report)


def predict(
    context: typer.Context,
    input_patterns: Annotated[
        list[str], flag("a table with one row per item: file or pattern; repeatable", "--input")
    ],
    out: Annotated[Path, flag("output file: .csv, .csv.gz or .parquet")],
    run: Annotated[Path | None, flag("a finished run")] = None,
    model: Annotated[Path | None, flag("an exported model: MODELS/NAME")] = None,
    item_id: Annotated[
        str | None, flag("column with the item ID; default: item_id, product_id, ...")
    ] = None,
    vectors: Annotated[
        str | None,
        flag("write the vectors of a `click_model` to this column, instead of scores"),
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
    note(f"loading {run or model}")
    from tfr_moe.cli.data import loss_lines
    from tfr_moe.cli.prediction import predict as run_predict

    with progress_bar(stderr(), "scoring") as progress:
        rows = run_predict(
            run,
            model,
            ",".join(input_patterns),
            out,
            item_id,
            vectors,
            progress=progress,
            batch_size=batch_size,
            overwrite=overwrite,
            beam_args=beam_args(context),
        )
    text = f"wrote {out}: {rows['written']} of {rows['read']} rows in {rows['lists']} lists"
    if rows["rejected"]:
        text += f"; {rows['rejected']} rows rejected (see {out}.rejects.jsonl)"
    if rows["cut"]:
        text += f"; {rows['cut']} cut"
    for line in (text, *loss_lines("rejected", rows["rejects"])):
        note(line)
