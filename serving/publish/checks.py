"""The checks that a candidate passes before it is published, each with its numbers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from tensorflow_serving.apis import predict_pb2

from tfr_moe._compat import tf
from tfr_moe.data.cache import dataset_builder
from tfr_moe.data.folder import DataFolder
from tfr_moe.evaluation import PerListResult, evaluate_tasks, score_tasks
from tfr_moe.evaluation.results import t_interval
from tfr_moe.evaluation.significance import aligned_values
from tfr_moe.utils.failures import reason_of

from ..export.golden import GOLDEN
from ..export.signatures import INPUT, PREDICT, RANK, SCORES
from ..model_store import RejectedError, ServedModel
from ..versions import EXTRA

LEVEL = 0.95
"""One-sided confidence of all comparisons."""
_TOLERANCE = 1e-5
_BATCH_SIZE = 128
_ROUNDS = 20
_SERIALIZED = "serialized list"


@dataclass(frozen=True)
class Check:
    """The outcome of one check.

    Attributes:
        name: of the check.
        passed: whether it was passed.
        text: what was measured and what is allowed, in one line.
        numbers: the same as numbers.
    """

    name: str
    passed: bool
    text: str
    numbers: dict[str, Any] = field(default_factory=dict)


def _request(folder: Path) -> Any:
    path = folder / EXTRA / GOLDEN / "request.pb"
    return predict_pb2.PredictRequest.FromString(path.read_bytes()) if path.is_file() else None


def golden_check(candidate: ServedModel, folder: Path, live: Path | None) -> Check:
    """The candidate repeats its golden answer, and answers the golden request of the live version.

    The latter has all outputs that clients of the live version read, with finite scores.

    Args:
        candidate: the candidate.
        folder: its folder.
        live: folder of the live version, if there is one.
    """

    def answer(of: Path) -> dict[str, np.ndarray]:
        request = _request(of)
        response = candidate.predict(request)
        return {name: tf.make_ndarray(value) for name, value in response.outputs.items()}

    def recorded(of: Path) -> dict[str, np.ndarray]:
        data = (of / EXTRA / GOLDEN / "response.pb").read_bytes()
        response = predict_pb2.PredictResponse.FromString(data)
        return {name: tf.make_ndarray(value) for name, value in response.outputs.items()}

    try:
        expected, again = recorded(folder), answer(folder)
        largest = max(float(np.abs(again[name] - value).max()) for name, value in expected.items())
        missing: set[str] = set()
        finite = True
        if live is not None and _request(live) is not None:
            of_live = answer(live)
            missing = recorded(live).keys() - of_live.keys()
            finite = bool(np.isfinite(of_live[SCORES]).all())
    except RejectedError as error:
        return Check("golden requests", False, f"not answered: {reason_of(error)}")
    text = f"answered, largest difference {largest:.1e}"
    if missing:
        text = f"the answer has no {', '.join(sorted(missing))}, which the live version returns"
    elif not finite:
        text = "the answer to the request of the live version is not finite"
    passed = not missing and finite and largest <= _TOLERANCE
    return Check("golden requests", passed, text, {"largest_difference": largest})


def evaluate_served(
    model: ServedModel, data: DataFolder, split: str, labels: Sequence[str], metric: str
) -> PerListResult:
    """Evaluates the served scores on all lists of a split, by the evaluator of `tfr-moe evaluate`.

    Args:
        model: a version; its signature `predict` gets the serialized lists.
        data: the data set.
        split: its split.
        labels: the labels, by each of which the ranking is evaluated.
        metric: the metric, `<label>_<metric>` in the result.
    """
    builder = dataset_builder(data, _BATCH_SIZE, tasks=tuple(labels))
    parsed = builder.build_evaluation_dataset(split)
    records = builder.serialized_lists(split).batch(_BATCH_SIZE)

    @tf.autograph.experimental.do_not_convert
    def with_record(element: Any, record: Any) -> Any:
        features, by_label, extras = element
        return {**features, _SERIALIZED: record}, by_label, extras

    dataset = tf.data.Dataset.zip((parsed, records)).map(with_record)

    def score(features: dict[str, Any]) -> Any:
        return model.run(PREDICT, {INPUT: features[_SERIALIZED]})[SCORES]

    batches = score_tasks(score, dataset, data.schema, dict.fromkeys(labels))
    return evaluate_tasks(batches, labels, [metric])


def _bounds(differences: np.ndarray) -> tuple[float, float, float]:
    """Mean and half-width of its one-sided interval at `LEVEL`, and the number of values."""
    count = len(differences)
    mean, error, *_ = t_interval(differences)
    if count < 2:
        return mean, float("inf"), count
    return mean, float(stats.t.ppf(LEVEL, count - 1)) * error, count


def quality_checks(
    candidate: PerListResult, live: PerListResult, metric: str, margin: float, of_category: float
) -> Iterator[Check]:
    r"""Whether a candidate is not worse than the live version, on the same lists.

    With d the mean over lists of candidate minus live and h the half-width of its one-sided 95 %
    interval (paired t), the candidate passes if

    $$ d - h \geq -m $$

    so that it is not published only because few lists leave it undecided. In each top category the
    same is required where there are lists enough to decide ($h \leq m_c / 2$), and elsewhere that
    it is not clearly worse ($d + h \geq -m_c$).

    Args:
        candidate: result on the newest lists.
        live: result on the same lists.
        metric: a metric of both.
        margin: m, overall.
        of_category: m_c, in each top category.
    """
    values = aligned_values([candidate, live], metric)
    differences = values[0] - values[1]
    d, h, count = _bounds(differences)
    numbers = {
        "lists": count,
        "candidate": float(values[0].mean()) if count else None,
        "live": float(values[1].mean()) if count else None,
        "difference": d if count else None,
        "lower_bound": d - h if count > 1 else None,
        "allowed": -margin,
    }
    text = f"{d:+.4f}, at least {d - h:+.4f} (95 %), allowed {-margin:+.4f}, {count:,} lists"
    if d - h < -margin <= d:
        needed = count * (h / (margin + d)) ** 2 if margin + d > 0 and count > 1 else np.inf
        text += f"; undecided, needs about {needed:,.0f} lists"
    yield Check(metric, d - h >= -margin, text, numbers)
    if candidate.categories is None:
        return
    categories = candidate.categories.astype(str)[~np.isnan(candidate.metric(metric))]
    for category in np.unique(categories):
        d, h, count = _bounds(differences[categories == category])
        if count < 2:
            continue
        decided = h <= of_category / 2
        passed = d - h >= -of_category if decided else d + h >= -of_category
        bound = f"at least {d - h:+.4f}" if decided else f"at most {d + h:+.4f}, undecided"
        text = f"{d:+.4f}, {bound} (95 %), allowed {-of_category:+.4f}, {count:,} lists"
        numbers = {"lists": count, "difference": d, "half_width": h, "allowed": -of_category}
        yield Check(f"{metric} in {category}", passed, text, {**numbers, "decided": decided})


def size_check(candidate: Path, live: Path, ratio: float) -> Check:
    """Whether the files of the candidate are at most `ratio` times as large."""
    sizes = [sum(p.stat().st_size for p in f.rglob("*") if p.is_file()) for f in (candidate, live)]
    found = sizes[0] / max(sizes[1], 1)
    text = f"{sizes[0]:,} bytes, {found:.2f} times the live version's, allowed {ratio:.2f}"
    return Check("size", found <= ratio, text, {"bytes": sizes[0], "ratio": found})


def latency_check(
    candidate: ServedModel, live: ServedModel, lists: Sequence[bytes], ratio: float
) -> Check:
    """Whether `rank` of one list takes at most `ratio` times as long: medians, taken in turns."""
    seconds: list[list[float]] = [[], []]
    for round_ in range(_ROUNDS + 1):
        for record in lists:
            inputs = {INPUT: tf.constant([record])}
            for number, model in enumerate((candidate, live)):
                started = time.perf_counter()
                model.run(RANK, inputs)
                if round_:  # the first one may trace
                    seconds[number].append(time.perf_counter() - started)
    medians = [float(np.median(of_model)) for of_model in seconds]
    found = medians[0] / medians[1]
    text = f"{1000 * medians[0]:.2f} ms, {found:.2f} times the live version's, allowed {ratio:.2f}"
    return Check("latency", found <= ratio, text, {"seconds": medians[0], "ratio": found})
