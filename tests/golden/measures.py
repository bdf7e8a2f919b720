"""Values of every loss and metric, and of the tests of significance, on fixed lists."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfr_moe import losses, metrics
from tfr_moe._compat import tf
from tfr_moe.evaluation.evaluate import compare_results, to_json
from tfr_moe.evaluation.results import evaluate_lists, summarize
from tfr_moe.evaluation.significance import compare, seed_interval
from tfr_moe.metrics import naming as metric_names
from tfr_moe.metrics.per_list import ListBatch

SIZE = 6
MAX_LABEL = 4
LOSSES = tuple(losses.names())
POLICIES = ("skip", "zero", "one")
METRICS = tuple(
    name
    for family, has_cutoff in sorted(metric_names.FORMS)
    if family != "ips_dcg"  # needs weights
    for name in ((f"{family}_3", f"{family}_10") if has_cutoff else (family,))
)
KERAS_METRICS = tuple(dict.fromkeys((*METRICS, *metrics.names())))


def loss(name: str) -> dict[str, Any]:
    """Values of a loss and norms of its gradient by the scores.

    Labels of a list all differ where a loss draws an order of equal ones. Labels are 0 and 1 in the
    lists of `binary`. Losses of this package are recorded with weights of lists and of items too.
    """
    rng = np.random.default_rng(11)
    valid = rng.random([8, SIZE]) < 0.8
    valid[:, 0] = True
    valid[7] = False
    valid[7, :2] = True
    order = np.argsort(rng.random([8, SIZE]), axis=1)
    graded = rng.integers(0, MAX_LABEL + 1, [8, SIZE])
    binary = (rng.random([8, SIZE]) < 0.4).astype(int)
    scores = tf.Variable(rng.normal(size=[8, SIZE]), dtype=tf.float32)
    levels = tf.Variable(rng.normal(size=[8, SIZE, SIZE - 1]), dtype=tf.float32)
    list_weights, item_weights = rng.uniform(0.5, 2, [8, 1]), rng.uniform(0.5, 2, [8, SIZE])
    draws = name in ("listmle", "list_mle_loss", "yeti_logistic_loss", "coupled_rankdistil_loss")
    truths = {"distinct": order} if draws else {"graded": graded, "binary": binary}
    weightings: dict[str, Any] = {"": None}
    if name in losses.LOSSES:
        weightings |= {", weighted lists": list_weights, ", weighted items": item_weights}
    result = {}
    for kind, truth in truths.items():
        labels = tf.constant(np.where(valid, truth, -1), tf.float32)
        logits = levels if name == "ordinal" else scores
        for weighting, weights in weightings.items():
            given = None if weights is None else tf.constant(weights, tf.float32)
            tf.keras.utils.set_random_seed(5)
            with tf.GradientTape() as tape:
                value = losses.get(name, SIZE - 1)(labels, logits, given)
            norm = tf.norm(tape.gradient(value, logits))
            result[kind + weighting] = {"value": float(value), "gradient_norm": float(norm)}
    return result


def scored_lists(seed: int, tied: bool = False) -> ListBatch:
    """The same lists under scores of that seed: some without anything relevant or irrelevant."""
    rng = np.random.default_rng(23)
    shape = (24, 13)
    sizes = rng.integers(1, shape[1] + 1, size=shape[0])
    mask = np.arange(shape[1])[None, :] < sizes[:, None]
    labels = rng.integers(0, 4, shape) * (rng.random(shape) < 0.35)
    labels[3], labels[4] = 0, 2
    positions = rng.permuted(np.tile(np.arange(1, shape[1] + 1), (shape[0], 1)), axis=1)
    categories = rng.choice(np.array(["shoes", "books", "tools"], dtype=object), shape[0])
    noise = np.random.default_rng(seed)
    scores = noise.integers(0, 4, shape) if tied else 0.3 * labels + noise.normal(size=shape)
    return ListBatch(
        scores=np.where(mask, scores, np.nan).astype(float),
        labels=np.where(mask, labels, -1).astype(float),
        mask=mask,
        list_ids=np.array([f"q{number}" for number in range(shape[0])], dtype=object),
        positions=positions.astype(float),
        categories=categories,
    )


def metric(name: str) -> dict[str, Any]:
    """One metric of every list and its means under every policy, without and with equal scores."""
    values: dict[str, Any] = {}
    for kind, tied in (("different scores", False), ("equal scores", True)):
        result = evaluate_lists([scored_lists(1, tied)], [name])
        values[kind] = {"lists": result.metric(name).tolist()}
        for policy in POLICIES:
            mean = summarize(result, policy)[name]
            values[kind][policy] = {
                "lists": result.with_policy(name, policy).tolist(),
                "mean": mean.mean,
                "evaluated": mean.evaluated,
                "skipped": mean.skipped,
                "nothing_relevant": mean.nothing_relevant,
                "standard_error": mean.standard_error,
                "low": mean.low,
                "high": mean.high,
            }
    return values


def keras_metric(name: str) -> dict[str, float]:
    """The Keras metric of that name over two batches."""
    tf.keras.utils.set_random_seed(5)
    subject = metrics.get(name)
    for seed in (1, 2):
        batch = scored_lists(seed)
        labels = tf.constant(batch.labels, tf.float32)
        subject.update_state(labels, tf.constant(np.nan_to_num(batch.scores), tf.float32))
    return {"mean": float(subject.result())}


def significance() -> dict[str, Any]:
    """Comparisons of two models and of several runs, intervals over seeds, and a whole report."""
    names = ("session_auc", "ndcg_shown_10", "mrr")
    runs = [evaluate_lists([scored_lists(seed)], names) for seed in range(1, 7)]
    a, b = runs[:3], runs[3:]
    seeds = [float(np.nanmean(run.metric("ndcg_shown_10"))) for run in runs]
    return {
        "compare": {
            f"{name}, {policy}": vars(compare(a[0], b[0], name, policy))
            for name in names
            for policy in POLICIES
        },
        "compare, several runs": {name: vars(compare(a, b, name)) for name in names},
        "seed_interval": vars(seed_interval(seeds)),
        "report": to_json(compare_results({"a": a[0], "b": b[0]}, "a", "zero", "mrr")),
    }
