"""The study `journey-ways`: what could make the category of a list worth more.

Each way is a small change of one tower or of a mixture of equal cost, trained on the lists of
`experiments.datasets.complete_journey` by Adam with a learning rate that falls to 0 along half a
cosine, and evaluated by session_auc. Differences from the tower are over the same seeds and lists,
with the library's interval over both.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from pydantic import Field, PositiveInt, field_validator
from rich.console import RenderableType
from rich.table import Table

from experiments.common.runs import Job, Result
from experiments.common.settings import StudySettings
from experiments.common.study import Study, StudyContext
from experiments.common.tables import interval_cell
from experiments.studies.ways.lists import Lists, load, prepare, sizes
from experiments.studies.ways.models import BINS, Way, WayModel
from experiments.studies.ways.teacher import teach
from tfr_moe import FeatureSchema, losses
from tfr_moe.errors import UserError
from tfr_moe.evaluation import difference_interval, seed_interval
from tfr_moe.metrics import ListBatch, resolve
from tfr_moe.utils import write_json

BASE = "tower"
WAYS = {
    BASE: Way(),
    "tower, no categories": Way(categories=False),
    "tower, 2.5 x": Way((316, 158)),
    "tower, piecewise-linear numbers": Way(numbers="piecewise"),
    "tower, periodic numbers": Way(numbers="periodic"),
    "tower, 2 crosses": Way((84, 88), crosses=2),
    "tower, positives against negatives": Way(loss="positives"),
    "tower, LambdaLoss": Way(loss="lambda"),
    "tower, averaged weights": Way(averaged=True),
    "tower, last layer by category": Way(by_category=("last",)),
    "tower, head by category": Way(by_category=("head",)),
    "tower, FiLM": Way(by_category=("film",)),
    "tower, LHUC": Way(by_category=("lhuc",)),
    "tower, adapters": Way(by_category=("adapters",)),
    "tower, head and FiLM": Way(by_category=("head", "film")),
    "tower, head, FiLM and last layer": Way(by_category=("head", "film", "last")),
    "tower, crosses, LambdaLoss": Way((84, 88), crosses=2, loss="lambda"),
    "tower, crosses, LambdaLoss, head and FiLM": Way(
        (84, 88), crosses=2, loss="lambda", by_category=("head", "film")
    ),
    "N=10, K=4": Way((64, 32), 10, 4),
    "N=20, K=2": Way((112, 56), 20, 2),
    "N=40, K=1": Way((176, 88), 40, 1),
    "N=40, K=8": Way((36, 18), 40, 8),
    "recommended, N=20, K=2 and one shared": Way((80, 40), 20, 2, recommended=True),
    "N=10, K=4, gate sees the list": Way((64, 32), 10, 4, gate_sees_list=True),
    "N=10, K=4, head by category": Way((64, 32), 10, 4, by_category=("head",)),
    "recommended, head by category": Way((80, 40), 20, 2, recommended=True, by_category=("head",)),
    "recommended, gate sees the list": Way((80, 40), 20, 2, recommended=True, gate_sees_list=True),
    "recommended, gate sees the list, head by category": Way(
        (80, 40), 20, 2, recommended=True, gate_sees_list=True, by_category=("head",)
    ),
    "N=10, K=4, averaged weights": Way((64, 32), 10, 4, averaged=True),
    "N=10, K=4, piecewise-linear numbers": Way((64, 32), 10, 4, numbers="piecewise"),
    "recommended, averaged weights": Way((80, 40), 20, 2, recommended=True, averaged=True),
    "tower, distilled": Way(teacher=0.7),
    "tower, last layer by category, distilled": Way(by_category=("last",), teacher=0.7),
    "recommended, distilled": Way((80, 40), 20, 2, recommended=True, teacher=0.7),
}
"""All ways, in the order of the table; the first is what the others are compared with."""


Pair = tuple[str, float]
"""A way and a learning rate."""


class WaySettings(StudySettings):
    """Settings of `journey-ways`.

    Attributes:
        rows: parts of the names of the ways to run; all if empty.
        learning_rates: of Adam at the start; each way uses its best one.
        runs: seeds of each way at its best rate, at least two for an interval.
        rungs: successive halving: increasing numbers of training lists. Each way is trained at each
            rate on the first number, the better half of these goes on to the next, and what is left
            to `pilot_runs`. The tower always goes on.
        pilot_runs: seeds at each rate.
        epochs: passes over the training lists.
        batch_size: lists of a step.
        train_lists: maximum number, chosen by a hash; None for all.
        averaging: share of the old average that each step keeps.
        split: the lists to evaluate; `test` is for what was selected on `validation`.
    """

    rows: tuple[str, ...] = ()
    learning_rates: tuple[float, ...] = Field((4e-3,), min_length=1)
    rungs: tuple[PositiveInt, ...] = ()
    runs: PositiveInt = 3
    pilot_runs: PositiveInt = 1
    epochs: PositiveInt = 2
    batch_size: PositiveInt = 256
    train_lists: PositiveInt | None = None
    averaging: float = Field(0.998, gt=0, lt=1)
    split: Literal["validation", "test"] = "validation"

    MAY_GROW: ClassVar[frozenset[str]] = frozenset({"rows", "runs", "learning_rates"})

    @field_validator("rungs")
    @classmethod
    def _increasing(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if any(more <= fewer for fewer, more in itertools.pairwise(value)):
            raise ValueError("numbers of training lists must increase")
        return value


def softmax_loss(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Mean over lists of the cross-entropy between shares of the labels and the softmax."""
    targets = tf.maximum(labels, 0.0)
    targets /= tf.reduce_sum(targets, axis=1, keepdims=True)
    return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(targets, logits))


def positives_loss(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Mean over positives of the cross-entropy of a positive among itself and the negatives."""
    positive = tf.cast(labels > 0, tf.float32)
    negatives = tf.reduce_logsumexp(tf.where(labels == 0, logits, -1e9), axis=1, keepdims=True)
    cost = tf.nn.softplus(negatives - logits) * positive
    return tf.reduce_sum(cost) / tf.reduce_sum(positive)


def loss_of(way: Way) -> Callable[..., tf.Tensor]:
    """Returns the loss of logits [B, L] and labels [B, L], -1 at padding."""
    if way.loss == "positives":
        return positives_loss
    if way.loss == "lambda":
        library = losses.get("ndcg_loss_2pp")
        return lambda logits, labels: library(labels, logits)
    return softmax_loss


def _training_lists(lists: Lists, count: int | None) -> NDArray[np.int64]:
    order = np.argsort(lists.hashes, kind="stable")
    return np.sort(order[:count])


def fit(
    way: Way, lists: Lists, settings: WaySettings, rate: float, seed: int, teacher: Any = None
) -> WayModel:
    """Trains a model of a way.

    Args:
        way: what it does.
        lists: of training.
        settings: of the study.
        rate: learning rate at the start.
        seed: of weights and order.
        teacher: float [n, L] shares of the items by an ensemble, for ways with `teacher`.
    """
    tf.keras.backend.clear_session()
    tf.keras.utils.set_random_seed(seed)
    selected = _training_lists(lists, settings.train_lists)
    sample = lists.numbers[selected[:5000]].reshape(-1, lists.numbers.shape[-1])
    edges = np.quantile(sample, np.linspace(0, 1, BINS + 1), axis=0).T
    model = WayModel(way, sizes(lists), edges, seed)
    steps = len(selected) // settings.batch_size
    if not steps:
        raise UserError(
            f"{len(selected)} training lists: fewer than batch_size={settings.batch_size} "
            "train nothing"
        )
    schedule = tf.keras.optimizers.schedules.CosineDecay(rate, steps * settings.epochs)
    optimizer = tf.keras.optimizers.legacy.Adam(schedule)
    loss = loss_of(way)

    @tf.function(autograph=False, jit_compile=False)
    def step(inputs: Any, labels: tf.Tensor, shares: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            logits = model(inputs, training=True)
            value = loss(logits, labels)
            if way.teacher:
                imitation = tf.nn.softmax_cross_entropy_with_logits(shares, logits)
                value = (1 - way.teacher) * value + way.teacher * tf.reduce_mean(imitation)
            value += tf.add_n(model.losses) if model.losses else 0.0
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(value, weights), weights, strict=True))

    averages: list[NDArray[np.float32]] = []
    random = np.random.default_rng(seed)
    for epoch in range(settings.epochs):
        order = selected[random.permutation(len(selected))]
        for number in range(steps):
            chosen = order[number * settings.batch_size : (number + 1) * settings.batch_size]
            labels = lists.labels[chosen]
            shares = teacher[chosen] if way.teacher else labels
            step(_inputs(lists, chosen), labels, shares)
            if way.averaged and epoch == settings.epochs - 1 and number % 10 == 9:
                averages = _averaged(averages, model, settings.averaging**10)
    if averages:
        for weight, value in zip(model.trainable_variables, averages, strict=True):
            weight.assign(value)
    return model


def _averaged(averages: Any, model: tf.keras.Model, share: float) -> Any:
    weights = [weight.numpy() for weight in model.trainable_variables]
    if not averages:
        return weights
    return [share * old + (1 - share) * new for old, new in zip(averages, weights, strict=True)]


def _inputs(lists: Lists, chosen: Any) -> tuple[Any, ...]:
    labels = lists.labels[chosen]
    return lists.numbers[chosen], lists.context[chosen], lists.ids[chosen], labels >= 0


def scores_of(model: WayModel, lists: Lists, batch: int = 2048) -> NDArray[np.float32]:
    """Returns the logits [n, L] of all lists."""
    forward = tf.function(lambda *inputs: model(inputs), autograph=False, reduce_retracing=True)
    parts = []
    for start in range(0, len(lists.labels), batch):
        parts.append(forward(*_inputs(lists, slice(start, start + batch))).numpy())
    return np.concatenate(parts)


def train_one(folder: Path, settings: WaySettings, job: Job) -> Result:
    """Trains and evaluates one run, and writes the metric of each list.

    Args:
        folder: of the study, with `lists` and `runs`.
        settings: of the study.
        job: `way`, `rate`, `seed`, and in a rung its number of training lists, `lists`.
    """
    way = WAYS[job["way"]]
    lists = load(folder / "lists" / "train")
    teacher = np.load(folder / "teacher.npy", mmap_mode="r") if way.teacher else None
    if "lists" in job:
        settings = settings.model_copy(update={"train_lists": job["lists"]})
    model = fit(way, lists, settings, job["rate"], job["seed"], teacher)
    parameters = int(sum(np.prod(weight.shape) for weight in model.trainable_variables))
    return {**_evaluate(model, folder, settings.split, job), "parameters": parameters}


def _evaluate(model: WayModel, folder: Path, split: str, job: Job) -> Result:
    lists = load(folder / "lists" / split)
    labels = np.asarray(lists.labels)
    batch = ListBatch(scores_of(model, lists), labels, labels >= 0, lists.hashes.astype(str))
    metric = resolve("session_auc")(batch)
    path = _values_path(folder, job)
    path.parent.mkdir(exist_ok=True)
    np.save(path, metric)
    return {"session_auc": float(metric.mean())}


def _values_path(folder: Path, job: Mapping[str, Any]) -> Path:
    name = "".join(c if c.isalnum() else "-" for c in job["way"])
    rung = f"_{job['lists']}" if "lists" in job else ""
    return folder / "runs" / f"{name}_{job['rate']}_{job['seed']}{rung}.npy"


def run(settings: WaySettings, context: StudyContext) -> Sequence[RenderableType]:
    """Runs what is missing, and returns the table."""
    names = _selected(settings.rows)
    lists = context.out / "lists"
    if not (lists / "validation").exists():
        data = context.need_data()
        prepare(data / "rows", FeatureSchema.load(data / "schema.json"), lists)
    if any(WAYS[name].teacher for name in names):
        teach(context.out, fit=functools.partial(fit, settings=settings), score=scores_of)
    work = functools.partial(train_one, context.out, settings)
    pairs = [(name, rate) for name in names for rate in settings.learning_rates]
    rungs = []
    for count in settings.rungs:
        rung = [{"way": way, "rate": rate, "seed": 0, "lists": count} for way, rate in pairs]
        results = context.run_all(rung, work, "rungs")
        rungs.append({pair: r["session_auc"] for pair, r in zip(pairs, results, strict=True)})
        pairs = better_half(rungs[-1])
    pilots = [
        {"way": name, "rate": rate, "seed": seed}
        for seed in range(settings.pilot_runs)
        for name, rate in pairs
    ]
    tried = context.run_all(pilots, work, "runs")
    best = _best_rates(pilots, tried)
    jobs = [
        {"way": name, "rate": rate, "seed": seed}
        for seed in range(settings.runs)
        for name, rate in best.items()
    ]
    results = context.run_all(jobs, work, "runs")
    rows = _summary(context.out, best, jobs, results)
    write_json(context.out / "results.json", rows)
    if not rungs:
        return [_table(rows)]
    return [_rung_table(names, settings.rungs, rungs), _table(rows)]


def better_half(values: Mapping[Pair, float]) -> list[Pair]:
    """Returns the better half of the ways with their rates, and the tower at its best rate.

    Example:
        >>> better_half({("tower", 0.1): 0.5, ("a", 0.1): 0.7, ("a", 0.2): 0.6, ("b", 0.1): 0.4})
        [('tower', 0.1), ('a', 0.1), ('a', 0.2)]
    """
    ranked = sorted(values, key=values.__getitem__, reverse=True)
    towers = [pair for pair in ranked if pair[0] == BASE]
    better = {*ranked[: math.ceil(len(ranked) / 2)], *towers[:1]}
    return [pair for pair in values if pair in better]


def _selected(words: Sequence[str]) -> list[str]:
    if not words:
        return list(WAYS)
    for word in words:
        if not any(word in name for name in WAYS):
            raise UserError(f"rows: no way's name contains {word!r}; ways: {'; '.join(WAYS)}")
    return [n for n in WAYS if n == BASE or any(word in n for word in words)]


def _best_rates(jobs: Sequence[Job], results: Sequence[Result]) -> dict[str, float]:
    sums: dict[str, dict[float, float]] = {}
    for job, result in zip(jobs, results, strict=True):
        of_way = sums.setdefault(job["way"], {})
        of_way[job["rate"]] = of_way.get(job["rate"], 0.0) + result["session_auc"]
    return {way: max(of_way, key=of_way.__getitem__) for way, of_way in sums.items()}


def _summary(
    out: Path,
    best: Mapping[str, float],
    jobs: Sequence[Job],
    results: Sequence[Result],
) -> list[dict[str, Any]]:
    values = {
        name: np.stack([np.load(_values_path(out, job)) for job in jobs if job["way"] == name])
        for name in best
    }
    parameters = {job["way"]: r["parameters"] for job, r in zip(jobs, results, strict=True)}
    rows = []
    for name in best:
        seeds = seed_interval(values[name].mean(axis=1))
        row = {
            "way": name,
            "rate": best[name],
            "runs": seeds.runs,
            "session_auc": seeds.mean,
            "deviation": seeds.standard_deviation,
            "parameters": parameters[name],
            "difference": float(values[name].mean() - values[BASE].mean()),
            "low": math.nan,
            "high": math.nan,
        }
        if name != BASE:
            interval = difference_interval(values[name], values[BASE])
            row.update(low=interval.low, high=interval.high)
        rows.append(row)
    return rows


def _rung_table(
    names: Sequence[str], counts: Sequence[int], rungs: Sequence[Mapping[Pair, float]]
) -> Table:
    """The best session_auc of each way in each rung that it reached, and its rate there."""
    table = Table("way", *(f"{count:,} lists" for count in counts), box=None)
    for name in names:
        cells = []
        for rung in rungs:
            values = {rate: value for (way, rate), value in rung.items() if way == name}
            rate = max(values, key=values.__getitem__, default=None)
            cells.append("" if rate is None else f"{values[rate]:.4f} ({rate:g})")
        table.add_row(name, *cells)
    return table


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table("way", "rate", "session_auc", "minus tower, points", "parameters", box=None)
    for row in rows:
        gap, low, high = (100 * row[key] for key in ("difference", "low", "high"))
        cell = "" if row["way"] == BASE else interval_cell(gap, low, high, 3)
        auc = f"{row['session_auc']:.4f}"
        table.add_row(row["way"], f"{row['rate']:g}", auc, cell, f"{row['parameters']:,}")
    return table


STUDIES = {"journey-ways": Study(WaySettings, run, needs_data=True)}
