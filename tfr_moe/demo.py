"""The whole way once, in one folder: logs to a query answered over gRPC."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console

from tfr_moe.comparison import evaluate_runs
from tfr_moe.config import RunConfig, make_config
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.encoding import decode_list
from tfr_moe.errors import UserError
from tfr_moe.evaluation.report import to_json
from tfr_moe.evaluation.tables import render as render_evaluation
from tfr_moe.folders import make_folder, read_json, write_json
from tfr_moe.progress import progress_bar
from tfr_moe.release import export_run
from tfr_moe.schema import FeatureSchema
from tfr_moe.synthetic import SearchLogOptions, generate
from tfr_moe.training import train

MODELS = ("dnn", "wide_dnn", "adv_hsc_moe")
SERVED = "adv_hsc_moe"


def demo_config(model: str, seed: int) -> RunConfig:
    """Towers a sixteenth of the paper's widths, so that three models train in minutes on two cores."""
    return make_config(
        {
            "model": model,
            "seed": seed,
            "expert_hidden_dims": (64, 32),
            "embedding_dim": 8,
            "embedding_l2": 1e-3,
            "learning_rate": 1e-3,
            "gate_learning_rate_multiplier": 10.0,
            "num_epochs": 12,
            "early_stopping_patience": 2,
        }
    )


@contextmanager
def _step(console: Console, text: str) -> Iterator[None]:
    console.print(f"[bold]{text}[/bold]")
    started = time.monotonic()
    yield
    console.print(f"  {time.monotonic() - started:.0f} s", highlight=False)


def run_demo(out: str | Path, sessions: int = 12_000, seed: int = 0) -> None:
    """Makes logs, data, three runs, a comparison, an export and one answered query below `out`.

    A demo that was stopped goes on where it was.

    Args:
        out: the folder.
        sessions: number of lists in the logs.
        seed: of logs and models.

    Raises:
        UserError: if `out` holds something else.
    """
    out = Path(out)
    console = Console(stderr=True)
    _claim(out, {"sessions": sessions, "seed": seed})
    logs, data, runs, models = (out / name for name in ("logs", "data", "runs", "models"))
    if not logs.exists():
        with _step(console, f"1/6 search logs of {sessions} sessions"):
            _make_logs(logs, sessions, seed, console)
    if not data.exists():
        with _step(console, "2/6 logs to a data set, with Apache Beam"):
            _build_data(logs, data, console)
    for model in MODELS:
        if not (runs / model / "metrics.json").exists():
            with _step(console, f"3/6 training {model}"):
                train(data, runs / model, demo_config(model, seed), console)
    with _step(console, "4/6 comparison on the test split"):
        _compare(data, [runs / model for model in MODELS], out / "evaluation.json")
    if not (models / SERVED / "1").exists():
        with _step(console, f"5/6 export of {SERVED}, checked in a fresh process"):
            export_run(runs / SERVED, models / SERVED, data, version=1, console=console)
    with _step(console, "6/6 local server, and one query over gRPC"):
        _query(data, models, out / "request.json")
    _farewell(out)


def _claim(out: Path, options: dict[str, Any]) -> None:
    note = out / "demo.json"
    before = read_json(note)
    if before is not None:
        if before != options:
            raise UserError(f"{out}: holds a demo made with {before}; choose another --out")
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out}: exists and holds no demo; choose another --out")
    make_folder(out, str(out))
    write_json(note, options)


def _make_logs(logs: Path, sessions: int, seed: int, console: Console) -> None:
    with progress_bar(console, "sessions") as progress:
        generate(logs, SearchLogOptions(sessions=sessions, seed=seed), progress)


def _build_data(logs: Path, data: Path, console: Console) -> None:
    from tfr_moe.beam.pipeline import BuildOptions, build

    options = BuildOptions(
        source="search-logs",
        input=str(logs / "logs-*.csv.gz"),
        schema=logs / "schema.yaml",
        out=data,
    )
    with progress_bar(console, "building") as progress:
        build(options, lambda stage, *amounts: progress(*amounts, stage))


def _compare(data: Path, runs: list[Path], target: Path) -> None:
    found = evaluate_runs(data, runs, baseline=runs[0])
    write_json(target, to_json(found))
    render_evaluation(found, Console(), max_categories=10)


def example_request(data: DataFolder, split: str = "test") -> dict[str, Any]:
    """A real list of a split as `tfr-moe rank` takes it: raw values of context and items."""
    for record in islice(iter(ElwcDatasetBuilder(data).serialized_lists(split)), 1000):
        context, items = decode_list(data.schema, record.numpy())
        if 5 <= len(items) <= 12:
            return {"context": context, "items": items}
    raise UserError(f"data {data.path}: no list of 5 to 12 items among the first 1000 of {split}")


def _query(data: Path, models: Path, request_file: Path) -> None:
    from tfr_moe.serving.client import RankingClient
    from tfr_moe.serving.render import render
    from tfr_moe.serving.request import load_request
    from tfr_moe.serving.server import RankingServer

    write_json(request_file, example_request(DataFolder(data)))
    request = load_request(request_file, FeatureSchema.load(data / "schema.json"))
    with (
        RankingServer(models, port=0) as server,
        RankingClient(server.target, SERVED) as client,
    ):
        ranking = client.rank(request.context, request.items)
        console = Console()
        console.print(render(ranking, request.items, console.width))


def _farewell(out: Path) -> None:
    folder = shlex.quote(str(out))
    print(
        f"""
In {folder}: logs/, data/ (ExampleListWithContext), runs/ (one folder a model), evaluation.json,
models/{SERVED}/1 (SavedModel for TF Serving), request.json.

Try next:
  tensorboard --logdir {folder}/runs
  tfr-moe train --data {folder}/data --model moe --out {folder}/runs/moe --set learning_rate=1e-3
  tfr-moe evaluate --data {folder}/data --run {folder}/runs/{SERVED} --baseline {folder}/runs/dnn
  tfr-moe serve --models {folder}/models &
  tfr-moe rank --target localhost:8500 --model {SERVED} --request {folder}/request.json"""
    )
