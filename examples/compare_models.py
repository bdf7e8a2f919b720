"""Compares models on one data set fairly: each its own learning rate, several seeds, test read once.

    python examples/compare_models.py --data DATA --out OUT --seeds 5 \
        --learning-rate 3e-4 --learning-rate 1e-3 --set expert_hidden_dims=[64,32]

For each model the learning rate with the best validation metric under the first seed is taken, then
all seeds are trained with it. The table shows the mean over seeds with a 95 % t interval, and the
difference from each reference model with a bootstrap interval over seeds and lists together. Tests over
seeds and over lists, corrected together, and effect sizes stand below it. Stopped and started again, it
goes on where it was.
"""

from __future__ import annotations

import dataclasses
import gc
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tfr_moe._compat import tf
from tfr_moe.comparison import evaluate_run
from tfr_moe.config import MODEL_NAMES, load_config
from tfr_moe.data import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.evaluation.claim_tables import by_metric, claim_markdown
from tfr_moe.evaluation.claims import Claim, claims
from tfr_moe.evaluation.result import PerListResult
from tfr_moe.evaluation.significance import seed_interval
from tfr_moe.folders import read_json, write_json
from tfr_moe.metric_names import DEFAULT_NAMES
from tfr_moe.training import train

CONSOLE = Console(stderr=True)
REFERENCES = ("dnn", "wide_dnn", "moe")


def trained(data: Path, run: Path, model: str, seed: int, rate: float, settings: list[str]) -> dict:
    """The metrics of a run, trained now unless it is there."""
    done = read_json(run / "metrics.json")
    if done is not None:
        return done
    pairs = [*settings, f"learning_rate={rate}", f"seed={seed}"]
    CONSOLE.print(f"{model}, learning rate {rate:g}, seed {seed}")
    try:
        return train(data, run, load_config(None, pairs, model=model), CONSOLE)
    finally:
        tf.keras.backend.clear_session()
        gc.collect()


def best_rate(scores: dict[float, dict]) -> float:
    """The learning rate whose best epoch has the highest monitored metric."""
    return max(scores, key=lambda rate: scores[rate]["best"][scores[rate]["monitor"]])


def compared(results: dict[str, list[PerListResult]], metrics: tuple[str, ...]) -> list[Claim]:
    """Each model against each reference model before it in the papers' order, tested together."""
    references = [name for name in REFERENCES if name in results]
    pairs = [
        (model, reference)
        for model in results
        for reference in references
        if model not in references[: references.index(reference) + 1]
    ]
    return claims(results, pairs, metrics)


def summary(
    results: dict[str, list[PerListResult]], metrics: tuple[str, ...], found: list[Claim]
) -> dict:
    """Per model and metric: mean over seeds, and differences over seeds and lists."""
    table: dict = {}
    for model, runs in results.items():
        table[model] = {}
        for metric in metrics:
            means = [float(run.values[metric][run.values[metric] == run.values[metric]].mean())
                     for run in runs]  # fmt: skip
            interval = seed_interval(means)
            row = {"mean": interval.mean, "low": interval.low, "high": interval.high}
            row["seeds"] = means
            for claim in found:
                if (claim.metric, claim.model) == (metric, model):
                    row[f"minus_{claim.reference}"] = [claim.difference, claim.low, claim.high]
            table[model][metric] = row
    return table


def markdown(table: dict, rates: dict[str, float], metrics: tuple[str, ...]) -> str:
    """The table for a page: a block of rows for each metric."""
    references = [r for r in REFERENCES if r in table]
    lines = []
    for metric in metrics:
        lines += [
            f"| {metric} | learning rate | mean over seeds [95 %] | "
            + " | ".join(f"minus {r} [95 %]" for r in references)
            + " |",
            "|---" * (3 + len(references)) + "|",
        ]
        for model, rows in table.items():
            row = rows[metric]
            cells = [f"{row['mean']:.4f} [{row['low']:.4f}, {row['high']:.4f}]"]
            for reference in references:
                found = row.get(f"minus_{reference}")
                cells.append(
                    "" if found is None else f"{found[0]:+.4f} [{found[1]:+.4f}, {found[2]:+.4f}]"
                )
            lines.append(f"| {model} | {rates[model]:g} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def main(
    data: Annotated[Path, typer.Option(help="data-set folder")],
    out: Annotated[Path, typer.Option(help="folder of runs and tables")],
    model: Annotated[list[str], typer.Option(help="a model; may be repeated")] = list(MODEL_NAMES),  # noqa: B006
    seeds: Annotated[int, typer.Option(help="number of seeds", min=1)] = 3,
    learning_rate: Annotated[list[float], typer.Option(help="to choose from")] = [1e-3],  # noqa: B006
    test_data: Annotated[
        Path | None,
        typer.Option(help="data-set folder whose test split is read; by default --data"),
    ] = None,
    metric: Annotated[list[str], typer.Option(help="a test metric")] = list(DEFAULT_NAMES[:4]),  # noqa: B006
    settings: Annotated[list[str], typer.Option("--set", help="key=value for every run")] = [],  # noqa: B006
) -> None:
    """Trains, chooses, evaluates and writes OUT/table.md and OUT/results.json."""
    metrics = tuple(metric)
    folder = DataFolder(test_data or data)
    rates: dict[str, float] = {}
    results: dict[str, list[PerListResult]] = {}
    for name in model:

        def run(seed: int, rate: float, name: str = name) -> Path:
            return out / name / f"lr-{rate:g}" / f"seed-{seed}"

        scores = {
            rate: trained(data, run(1, rate), name, 1, rate, settings) for rate in learning_rate
        }
        rates[name] = rate = best_rate(scores)
        for seed in range(2, seeds + 1):
            trained(data, run(seed, rate), name, seed, rate, settings)
        results[name] = []
        for seed in range(1, seeds + 1):
            results[name].append(evaluate_run(folder, run(seed, rate), "test", metrics))
            tf.keras.backend.clear_session()
    found = compared(results, metrics)
    table = summary(results, metrics, found)
    write_json(
        out / "results.json",
        {
            "learning_rates": rates,
            "settings": settings,
            "models": table,
            "claims": [dataclasses.asdict(claim) for claim in found],
        },
    )
    text = markdown(table, rates, metrics)
    text += "\n" + "\n\n".join(
        "\n".join(claim_markdown(family)) for family in by_metric(found).values()
    )
    (out / "table.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    try:
        typer.run(main)
    except UserError as error:
        raise SystemExit(f"error: {error}") from None
