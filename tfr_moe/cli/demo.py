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

from tfr_moe.baselines import train_any
from tfr_moe.config import BASELINE_NAMES, RunConfig, applicable, make_config
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.elwc.values import decode_list
from tfr_moe.errors import UserError
from tfr_moe.evaluation.evaluate import EvaluationReport, evaluate_runs, to_json
from tfr_moe.evaluation.significance import Comparison
from tfr_moe.evaluation.tables import render as render_evaluation
from tfr_moe.schema import FeatureSchema
from tfr_moe.serving.export import export_run
from tfr_moe.synthetic import SearchLogOptions, generate
from tfr_moe.training.run_folder import METRICS_FILE
from tfr_moe.utils.console import progress_bar
from tfr_moe.utils.io import make_folder, read_json, write_json

MODELS = ("dnn", "adv_hsc_moe", "wide_dnn", "lambdamart")
BASELINE = "dnn"
METRIC = "session_auc"


def demo_config(model: str, seed: int) -> RunConfig:
    """The default settings with small towers, to train in minutes on two cores."""
    settings = {
        "seed": seed,
        "expert_hidden_dims": (64, 32),
        "embedding_dim": 8,
        "embedding_l2": 1e-3,
        "learning_rate": 1e-3,
        "num_epochs": 12,
        "early_stopping_patience": 2,
    }
    return make_config({"model": model, **applicable(model, settings)})


@contextmanager
def _step(console: Console, text: str) -> Iterator[None]:
    console.print(f"[bold]{text}[/bold]")
    started = time.monotonic()
    yield
    console.print(f"  {time.monotonic() - started:.0f} s", highlight=False)


def run_demo(out: str | Path, sessions: int = 12_000, seed: int = 0) -> None:
    """Makes logs, data, four runs, a comparison, an export and one answered query below `out`.

    The same call resumes an interrupted demo. The neural model that is best on the validation split
    is exported.

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
                train_any(data, runs / model, demo_config(model, seed), console)
    with _step(console, "4/6 comparison on the test split"):
        report = _compare(data, runs, out / "evaluation.json")
    served = best_model(runs)
    if not (models / served / "1").exists():
        with _step(console, f"5/6 export of {served}, checked in a fresh process"):
            export_run(runs / served, models / served, data, version=1, console=console)
    with _step(console, "6/6 local server, and one query over gRPC"):
        _query(data, models, served, out / "request.json")
    difference = report.comparisons[served][METRIC] if served != BASELINE else None
    print(f"\n{verdict(served, difference)}")
    _farewell(out, served)


def best_model(runs: Path) -> str:
    """The neural model with the highest validation metric."""
    best = {
        model: read_json(runs / model / METRICS_FILE)["best"][f"val_{METRIC}"]
        for model in MODELS
        if model not in BASELINE_NAMES
    }
    return max(best, key=lambda model: best[model])


def verdict(served: str, difference: Comparison | None) -> str:
    """What is served and why, and its difference from the baseline on test, None for itself."""
    chosen = f"{served} is served: it has the best validation {METRIC} of the neural models."
    if difference is None:
        return chosen
    low, high = difference.low, difference.high
    significance = "significant" if low > 0 or high < 0 else "not significant"
    return (
        f"{chosen}\nTest {METRIC} minus that of {BASELINE}: {difference.difference:+.4f} "
        f"[{low:+.4f}, {high:+.4f}], {significance} over lists\n"
        "(one training run each: seed variance is not included)."
    )


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
    from tfr_moe.beam import BuildOptions, build

    options = BuildOptions(
        source="search-logs",
        input=str(logs / "logs-*.csv.gz"),
        schema=logs / "schema.yaml",
        out=data,
    )
    with progress_bar(console, "building") as progress:
        build(options, progress)


def _compare(data: Path, runs: Path, target: Path) -> EvaluationReport:
    others = [runs / model for model in MODELS if model != BASELINE]
    report = evaluate_runs(data, others, baseline=runs / BASELINE)
    write_json(target, to_json(report))
    render_evaluation(report, Console(), max_categories=10)
    return report


def example_request(data: DataFolder, split: str = "test") -> dict[str, Any]:
    """A real list of a split as `tfr-moe rank` takes it: raw values of context and items."""
    for record in islice(iter(ElwcDatasetBuilder(data).serialized_lists(split)), 1000):
        context, items = decode_list(data.schema, record.numpy())
        if 5 <= len(items) <= 12:
            return {"context": context, "items": items}
    raise UserError(f"data {data.path}: no list of 5 to 12 items among the first 1000 of {split}")


def _query(data: Path, models: Path, served: str, request_file: Path) -> None:
    from tfr_moe.serving.client import RankingClient
    from tfr_moe.serving.client.render import render
    from tfr_moe.serving.client.request import load_request
    from tfr_moe.serving.dev_server import DevServer

    write_json(request_file, example_request(DataFolder(data)))
    request = load_request(request_file, FeatureSchema.load(data / "schema.json"))
    with (
        DevServer(models, port=0) as server,
        RankingClient(server.target, served) as client,
    ):
        ranking = client.rank(request.context, request.items)
        console = Console()
        console.print(render(ranking, request.items, console.width))


def _farewell(out: Path, served: str) -> None:
    folder = shlex.quote(str(out))
    print(
        f"""
In {folder}: logs/, data/ (ExampleListWithContext), runs/ (one folder a model), evaluation.json,
models/{served}/1 (SavedModel for TF Serving), request.json.

Try next:
  tensorboard --logdir {folder}/runs
  tfr-moe train --data {folder}/data --model moe --out {folder}/runs/moe --set learning_rate=1e-3
  tfr-moe evaluate --data {folder}/data --run {folder}/runs/moe --baseline {folder}/runs/dnn
  tfr-moe serve --models {folder}/models &
  tfr-moe rank --target localhost:8500 --model {served} --request {folder}/request.json"""
    )
