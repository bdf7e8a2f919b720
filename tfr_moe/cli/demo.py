"""The whole way once, in one folder: logs to a query answered over gRPC."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from tfr_moe.comparison import claim, compare
from tfr_moe.data.builder import ElwcDatasetBuilder
from tfr_moe.data.folder import DataFolder
from tfr_moe.elwc.values import decode_list
from tfr_moe.errors import UserError, validated
from tfr_moe.schema import FeatureSchema
from tfr_moe.serving.export import export_run
from tfr_moe.synthetic import SearchLogOptions, generate
from tfr_moe.utils.console import progress_bar
from tfr_moe.utils.io import plain, write_json

MODELS = ("dnn", "adv_hsc_moe", "wide_dnn", "lambdamart")
SETTINGS = {
    "num_experts": 12,
    "expert_hidden_dims": (32, 16),
    "embedding_dim": 8,
    "ignored_features": ("item_id", "user_id", "query_id", "click_history"),
    "learning_rate": 5e-3,
    "learning_rate_drop_epoch": 10,
    "library_parameters": {"learning_rate": 0.1},
    "num_epochs": 12,
    "cache": "memory",
    "steps_per_execution": 10,
    "early_stopping_patience": 3,
}
"""Small towers and fixed learning rates, to train in minutes on two cores.

IDs are overfit in a log of this size. The eight top categories cannot use the default of 20
experts.
"""
TEST_FRACTION = 0.3
"""Large, since lists cost little here and a small test split could not separate the models."""


@contextmanager
def _step(console: Console, text: str) -> Iterator[None]:
    console.print(f"[bold]{text}[/bold]")
    started = time.monotonic()
    yield
    console.print(f"  {time.monotonic() - started:.0f} s", highlight=False)


def run_demo(out: str | Path, sessions: int = 24_000, seed: int = 0) -> None:
    """Makes logs, data, a comparison of four models, an export and one answered query below `out`.

    The same call resumes an interrupted demo. The model that is best on the validation split is
    exported.
    """
    out = Path(out)
    console = Console(stderr=True)
    size = {"sessions": sessions, "seed": seed}
    # Its top categories weigh features, and products of features, differently.
    shop = {"noise": 0.3, "combinations": 0.5, "traffic_exponent": 0.5}
    world = validated(SearchLogOptions, {**size, **shop}, "demo")
    claim(out, "demo.json", size, "demo")
    logs, data, models = (out / name for name in ("logs", "data", "models"))
    if not logs.exists():
        step = _step(console, f"1/5 search logs of {sessions} sessions")
        with step, progress_bar(console, "sessions") as progress:
            generate(logs, world, progress)
    if not data.exists():
        with _step(console, "2/5 logs to a data set, with Apache Beam"):
            _build_data(logs, data, console)
    with _step(console, "3/5 training and comparison of four models"):
        board = compare(
            data,
            out / "comparison",
            MODELS,
            settings=SETTINGS,
            seed=seed,
            report=False,
            console=console,
        )
    best = board.entries[0]
    runs = [out / "comparison" / "runs" / entry.best_run for entry in board.entries]
    if not (models / best.model / "1").exists():
        with _step(console, f"4/5 export of {best.model}, checked in a fresh process"):
            export_run(runs[0], models / best.model, data, version=1, console=console)
    with _step(console, "5/5 local server, and one query over gRPC"):
        _query(data, models, best.model, out / "request.json")
    tables = Console()
    tables.print(board.table(tables.width))
    print(f"\n{board.verdict}")
    print(f"{best.model} is served: the best by validation {board.metric}.")
    _farewell(out, best.model, runs)


def _build_data(logs: Path, data: Path, console: Console) -> None:
    from tfr_moe.beam import BuildOptions, build

    options = BuildOptions(
        source="search-logs",
        input=str(logs / "logs-*.csv.gz"),
        schema=logs / "schema.yaml",
        out=data,
        test_fraction=TEST_FRACTION,
    )
    with progress_bar(console, "building") as progress:
        build(options, progress)


def example_request(data: DataFolder) -> dict[str, Any]:
    """A real test list as `tfr-moe rank` takes it: raw values of context and items."""
    for record in ElwcDatasetBuilder(data).serialized_lists("test").take(1000):
        context, items = decode_list(data.schema, record.numpy())
        if 5 <= len(items) <= 12:
            return {"context": context, "items": items}
    raise UserError(f"data {data.path}: no list of 5 to 12 items among the first 1000 of test")


def _query(data: Path, models: Path, served: str, request_file: Path) -> None:
    from tfr_moe.cli.serving import ranking_table
    from tfr_moe.serving.client import RankingClient
    from tfr_moe.serving.client.request import load_request
    from tfr_moe.serving.dev_server import DevServer

    write_json(request_file, plain(example_request(DataFolder(data))))
    request = load_request(request_file, FeatureSchema.load(data / "schema.json"))
    with (
        DevServer(models, port=0) as server,
        RankingClient(server.target, served) as client,
    ):
        ranking = client.rank(request.context, request.items)
        console = Console()
        console.print(ranking_table(ranking, request.items, console.width))


def _farewell(out: Path, served: str, runs: Sequence[Path]) -> None:
    folder, first, second = (shlex.quote(str(path)) for path in (out, *runs[:2]))
    print(
        f"""
In {folder}: logs/, data/ (ExampleListWithContext), comparison/ (leaderboard.json, and a run of each
model), models/{served}/1 (SavedModel for TF Serving), request.json.

Try next:
  tfr-moe report --data {folder}/data --run {first} --run {second} --out {folder}/report.html
  tfr-moe explain --run {first} --request {folder}/request.json
  tfr-moe serve --models {folder}/models &
  tfr-moe rank --target localhost:8500 --model {served} --request {folder}/request.json"""
    )
