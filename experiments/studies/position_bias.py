"""Clicks with a known examination by position: what the bias tower recovers of the true utility.

Each seed draws a world and a log (`tfr_moe.synthetic`) whose items were ordered by a ranker and
examined with probability p^-strength at position p. Models learn from the clicks, and are evaluated
on later lists by NDCG with the true probability of a click on an examined item as gain. Intervals
are Student's t over seeds.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from pydantic import Field, NonNegativeFloat
from rich.console import RenderableType
from rich.table import Table

from experiments.common.runs import Job, Result
from experiments.common.settings import StudySettings
from experiments.common.study import Study, StudyContext
from tfr_moe import FeatureSchema, Ranker
from tfr_moe.errors import validated
from tfr_moe.evaluation import examination_curve, seed_interval
from tfr_moe.report import Line, chart, write_figure
from tfr_moe.synthetic import SearchLogOptions, SessionGenerator, build_world, thresholds
from tfr_moe.utils import write_json

# Items are identified by their features; their IDs are for the variation of positions alone.
_WITHOUT_IDS = {"ignored_features": ["item_id"]}
_DNN = {
    **_WITHOUT_IDS,
    "model": "dnn",
    "expert_hidden_dims": [32, 16],
    "embedding_dim": 4,
    "batch_size": 64,
    "learning_rate": 3e-3,
    "num_epochs": 8,
    "monitor": "loss",
}
_TREES = {
    **_WITHOUT_IDS,
    "model": "lambdamart",
    "library_parameters": {"num_iterations": 80, "learning_rate": 0.1, "num_leaves": 15},
}
_BIAS = {"position_bias": ["position"]}
MODELS: dict[str, dict[str, Any]] = {
    "DNN": _DNN,
    "DNN, tower": {**_DNN, **_BIAS},
    "LightGBM": _TREES,
    "LightGBM, position": {**_TREES, **_BIAS},
}
PAIRS = {"DNN, tower": "DNN", "LightGBM, position": "LightGBM"}
_FEATURES = {
    "context": ["top_category", "sub_category", "user_age", "user_purchase_power"],
    "example": [
        *("item_id", "brand", "product_ctr", "product_cvr", "price", "sales_volume"),
        *("good_comments_ratio", "relevance_score", "user_sub_category_ctr"),
    ],
}
_IDS = ("top_category", "sub_category", "item_id", "brand")
_POSITIONS = 10


class PositionBiasSettings(StudySettings):
    """What is generated and trained.

    Attributes:
        runs: seeds.
        strengths: exponents of the examination.
        sessions: training lists; a tenth of them are for validation.
        test_sessions: lists to evaluate on.
        production_quality: of the ranker that ordered the lists, see `SearchLogOptions`.
    """

    runs: int = Field(5, ge=1)
    strengths: tuple[NonNegativeFloat, ...] = (0.0, 0.3, 1.0)
    sessions: int = Field(4000, ge=100)
    test_sessions: int = Field(1000, ge=10)
    production_quality: float = Field(0.7, ge=0, le=1)

    SIZES: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        "small": {"runs": 2, "strengths": (1.0,), "sessions": 200, "test_sessions": 50},
    }
    MAY_GROW: ClassVar[frozenset[str]] = frozenset({"runs"})


def log_options(settings: PositionBiasSettings, strength: float, seed: int) -> SearchLogOptions:
    """Options of the log of a seed."""
    options = {
        "sessions": settings.sessions + settings.test_sessions,
        "seed": seed,
        "num_files": 1,
        "top_categories": 4,
        "sub_categories": 8,
        "shared_names": 0,
        "production_quality": settings.production_quality,
        "position_bias": strength,
        "click_rate": 0.1,
        "cart_rate": 0.06,
        "purchase_rate": 0.04,
    }
    return validated(SearchLogOptions, options, "log")


def generated_frame(options: SearchLogOptions) -> pd.DataFrame:
    """The rows of a log, with `relevance`: the probability of a click on the item if examined."""
    generator = SessionGenerator(options, build_world(options))
    limit = thresholds(options)[0]
    chunks = []
    for chunk in generator.chunks(0):
        relevance = 1 / (1 + np.exp((limit - chunk.utility) / options.noise))
        chunks.append(pd.DataFrame(chunk.columns).assign(relevance=relevance))
    return pd.concat(chunks, ignore_index=True)


def schema_of_log() -> dict[str, Any]:
    """The schema of `generated_frame`."""
    features = [
        {
            "name": name,
            "scope": scope,
            "kind": "categorical" if name in _IDS else "numeric",
            **({"min_count": 2} if name in _IDS else {}),
        }
        for scope, names in _FEATURES.items()
        for name in names
    ]
    return {
        "list_id": "session_id",
        "time": "timestamp",
        "position": "position",
        "labels": ["click"],
        "hierarchy": {"child": "sub_category", "parent": "top_category"},
        "features": features,
    }


def run_one(settings: Mapping[str, Any], job: Job) -> Result:
    """Trains a model on the log of a seed and evaluates it on later lists."""
    study = PositionBiasSettings.model_validate(settings)
    frame = generated_frame(log_options(study, job["strength"], job["seed"]))
    train = frame[frame.session_id < study.sessions]
    test = frame[frame.session_id >= study.sessions]
    schema = FeatureSchema.model_validate(schema_of_log())
    ranker = Ranker(**MODELS[job["model"]], seed=job["seed"])
    ranker.fit(train, schema=schema, verbose=0)
    truth = ranker.evaluate(test.assign(click=test.relevance), ["ndcg"])["ndcg"]
    curve = ranker.run.metrics.get("position_bias", {}).get("")
    return {"ndcg": truth, "curve": curve}


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean over seeds, and the half-width of its 95 % interval."""
    of_seeds = seed_interval(values)
    return of_seeds.mean, (of_seeds.high - of_seeds.low) / 2


def summarize(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means, paired differences and curves, by strength.

    Args:
        rows: jobs with their results.
    """
    by_cell: dict[tuple[float, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        by_cell.setdefault((row["strength"], row["model"]), []).append(row)
    content: dict[str, Any] = {}
    for (strength, model), cell in by_cell.items():
        of_model = {"ndcg": interval([row["ndcg"] for row in cell])}
        if model in PAIRS:
            without = by_cell[strength, PAIRS[model]]
            pairs = zip(cell, without, strict=True)
            of_model["gain"] = interval(
                [of_seed["ndcg"] - other["ndcg"] for of_seed, other in pairs]
            )
        content.setdefault(f"{strength:g}", {})[model] = of_model
    for strength in {row["strength"] for row in rows}:
        curves = [row["curve"]["bias"][:_POSITIONS] for row in by_cell[strength, "DNN, tower"]]
        content[f"{strength:g}"]["curve"] = [interval(at) for at in zip(*curves, strict=True)]
    return content


def _swaps(settings: PositionBiasSettings, strength: float) -> list[tuple[float, float]]:
    """The logarithm of the examination estimated from the swaps of each log, by position."""
    curves = []
    for seed in range(1, settings.runs + 1):
        frame = generated_frame(log_options(settings, strength, seed))
        columns = {"list_id": "session_id", "position": "position", "click": "click"}
        curve = examination_curve(frame, ["query_id", "item_id"], **columns, resamples=1)
        curves.append(np.log(curve.examination))
    return [interval(at) for at in np.transpose(curves)]


def _table(content: Mapping[str, Any]) -> Table:
    table = Table(title="NDCG against the true utility, mean over seeds [95 %]")
    for name in ("strength", "model", "true NDCG", "gain by the bias"):
        table.add_column(name, no_wrap=True)
    for strength, models in content.items():
        for model in MODELS:
            cell = models[model]
            gain = "{:+.4f} ± {:.4f}".format(*cell["gain"]) if "gain" in cell else ""
            table.add_row(strength, model, "{:.4f} ± {:.4f}".format(*cell["ndcg"]), gain)
    return table


def _draw(content: Mapping[str, Any], context: StudyContext) -> None:
    lines = []
    for number, (strength, models) in enumerate(content.items()):
        means, halves = np.array(models["curve"]).T
        at = np.arange(1.0, len(means) + 1)
        low, high = np.exp(means - halves), np.exp(means + halves)
        lines += [
            Line(f"strength {strength}", at, np.exp(means), low, high, "curve", number),
            Line("", at, at ** -float(strength), kind="dashed", colour=number),
        ]
        swaps = np.exp([mean for mean, _ in models["swaps"]])
        lines.append(Line("", at[: len(swaps)], swaps, kind="points", colour=number))
    finding = "examination by position: the bias tower's (lines), from swaps (marks), true (dashed)"
    panel = chart(
        lines,
        finding,
        "position",
        "examination over position 1",
        title="line: bias tower (odds), marks: swaps, dashed: truth",
        include=((), (0.0,)),
        integer=True,
    )
    write_figure([panel], context.out / "position_bias.svg")


def run(settings: PositionBiasSettings, context: StudyContext) -> Sequence[RenderableType]:
    """Runs what is missing; writes `results.json` and the plot of the curves."""
    jobs: list[Job] = [
        {"strength": strength, "seed": seed, "model": model}
        for seed in range(1, settings.runs + 1)
        for strength in settings.strengths
        for model in MODELS
    ]
    work = functools.partial(run_one, settings.model_dump(mode="json"))
    results = context.run_all(jobs, work, "runs")
    content = summarize([{**job, **row} for job, row in zip(jobs, results, strict=True)])
    for strength in settings.strengths:
        content[f"{strength:g}"]["swaps"] = _swaps(settings, strength)
    write_json(context.out / "results.json", content)
    _draw(content, context)
    return [_table(content)]


STUDIES = {"position-bias": Study(PositionBiasSettings, run)}
