"""The publish gate: a run becomes the next version of a model if it passes all checks.

The candidate is exported aside, compared with the live version, and renamed to `MODELS/NAME/N`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from scipy.special import stdtrit
from tensorflow_serving.apis import predict_pb2

from tfr_moe._compat import tf
from tfr_moe.analysis.drift import measure_drift
from tfr_moe.analysis.drift_limits import DriftLimits
from tfr_moe.data.builder import ElwcDatasetBuilder
from tfr_moe.data.folder import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.evaluation import PerListResult, evaluate_tasks, score_tasks
from tfr_moe.evaluation.results import t_interval
from tfr_moe.evaluation.significance import aligned_values
from tfr_moe.metrics.naming import check_columns
from tfr_moe.training.run_folder import stored_config
from tfr_moe.utils.console import make_log
from tfr_moe.utils.failures import file_errors, reason_of
from tfr_moe.utils.io import make_folder, plain, read_json, working_directory, write_json

from .client.ranking import outputs_of
from .export.export import GOLDEN, export_run, free_version, sample_lists
from .export.signatures import INPUT, PREDICT, RANK, SCORES
from .model_store import RejectedError, ServedModel
from .versions import EXTRA, RETIRED, versions_of

LEVEL = 0.95
"""One-sided confidence of all comparisons."""

_DECISION = "decision.json"
_TOLERANCE = 1e-5
_BATCH_SIZE = 128
_ROUNDS = 20


@dataclass(frozen=True)
class Check:
    """The outcome of a check: what was measured and what is allowed, as a line and as numbers."""

    name: str
    passed: bool
    text: str
    numbers: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Decision:
    """Whether a candidate passed all checks and was published.

    `live` is the version that it was compared with, None for the first one; `data` has the folder
    and fingerprint of the data set; `created` is the time of the decision, ISO 8601.
    """

    published: bool
    version: int
    live: int | None
    run: str
    data: dict[str, str]
    created: str
    checks: list[Check]


def publish(
    run: str | Path,
    to: str | Path,
    data: str | Path,
    *,
    split: str = "test",
    metric: str = "ndcg_10",
    margin: float = 0.002,
    category_margin: float = 0.01,
    max_ratio: float = 1.5,
    reference: str | Path | None = None,
    limits: DriftLimits | None = None,
    console: Console | None = None,
) -> Decision:
    """Publishes a run as the next version of a model, if it passes all checks.

    The candidate is exported to a hidden folder beside `to`, which TensorFlow Serving does not see,
    and renamed to `to/<version>` after the last check. A process that is killed at any point leaves
    the served folder as it was, or with the complete new version; the next call removes what it
    left. The decision is written to `to/decisions/<time>-<version>.json`, and into
    `assets.extra/decision.json` of a published version.

    Args:
        run: a finished run.
        to: `MODELS/NAME`, which is served.
        data: data set with the newest lists.
        split: the split that the versions are compared on.
        metric: metric of the comparison, of each task of the run.
        margin: see `quality_checks`.
        category_margin: see `quality_checks`.
        max_ratio: the largest size and latency in relation to the live version.
        reference: data set from which the drift of `data` must be below its limits; None for no
            check.
        limits: of drift.
        console: receives progress; None for stderr.

    Raises:
        UserError: for a run, data or folder that do not fit, or if another process publishes.
    """
    console = console or Console(stderr=True)
    to, folder = Path(to), DataFolder(data)
    tasks = stored_config(Path(run)).tasks_over(folder.schema)
    labels = [task.name for task in tasks] or [folder.schema.label]
    check_columns([metric], folder.schema.position, folder.schema.weight)
    folder.check_lists(split)
    free_version(to, None)  # rejects what is not the folder of a model
    name = to.resolve().name
    checks: list[Check] = []
    log = make_log(console)

    def add(check: Check) -> None:
        checks.append(check)
        log(f"{'passed' if check.passed else 'FAILED'}  {check.name}: {check.text}")

    make_folder(to.parent, f"publish {to}")
    with file_errors(f"publish {to}"), working_directory(to.resolve()) as aside:
        versions = versions_of(to)
        live = versions[-1] if versions else None
        if live is not None and (of_live := read_json(to / str(live) / EXTRA / _DECISION)):
            _record(to, of_live)  # a process was killed between renaming and recording
        version = 1 + max([0, *versions, *versions_of(to / RETIRED)])
        if reference is not None:
            add(_drift_check(reference, folder, limits))
        candidate = export_run(run, aside / name, data, version, console)
        served = ServedModel(candidate)
        add(golden_check(served, candidate, None if live is None else to / str(live)))
        if live is not None:
            add(size_check(candidate, to / str(live), max_ratio))
            both = served, ServedModel(to / str(live))
            try:
                add(latency_check(*both, sample_lists(folder, split), max_ratio))
                now, before = (evaluate_served(m, folder, split, labels, metric) for m in both)
            except RejectedError as error:
                text = f"a version cannot read the lists of {folder.path}: {reason_of(error)}"
                add(Check("comparison", False, text))
            else:
                for label in labels:
                    of_label = f"{label}_{metric}"
                    for check in quality_checks(now, before, of_label, margin, category_margin):
                        add(check)
        decision = Decision(
            all(check.passed for check in checks),
            version,
            live,
            str(Path(run).resolve()),
            {"path": str(folder.path.resolve()), "fingerprint": folder.fingerprint},
            datetime.now(timezone.utc).isoformat(timespec="seconds"),
            checks,
        )
        make_folder(to, f"publish {to}")
        if decision.published:
            write_json(candidate / EXTRA / _DECISION, plain(decision))
            os.rename(candidate, to / str(version))
        _record(to, plain(decision))
    return decision


def _record(to: Path, decision: Mapping[str, Any]) -> None:
    """Writes a decision to `to/decisions`, unless it is there."""
    when = decision["created"].replace(":", "").replace("+0000", "Z")
    path = to / "decisions" / f"{when}-{decision['version']}.json"
    make_folder(path.parent, f"publish {to}")
    if not path.is_file():
        write_json(path, decision)


def roll_back(to: str | Path) -> tuple[int, int]:
    """Retires the newest version, so that TensorFlow Serving loads the one before it.

    Renaming `to/<version>` to `to/retired/<version>` takes it away in one step; the server loads
    the previous version before it unloads this one. The number is not used again.

    Returns:
        The retired version, and the one that is live now.

    Raises:
        UserError: if there are not two versions, or another process publishes.
    """
    to = Path(to)
    _newest_two(to)
    with working_directory(to.resolve()):
        newest, before = _newest_two(to)  # another process may have published one
        make_folder(to / RETIRED, f"publish {to}")
        os.rename(to / str(newest), to / RETIRED / str(newest))
    return newest, before


def _newest_two(to: Path) -> tuple[int, int]:
    versions = versions_of(to)
    if len(versions) < 2:
        has = f"version {versions[0]} only" if versions else "no version"
        raise UserError(f"publish {to}: there is no version to roll back to, it has {has}")
    return versions[-1], versions[-2]


def _drift_check(reference: str | Path, data: DataFolder, limits: DriftLimits | None) -> Check:
    above = [row for row in measure_drift(reference, data, limits) if row.exceeded]
    names = list(dict.fromkeys(row.column for row in above))
    text = f"above the limits: {', '.join(names)}" if above else "below the limits"
    return Check("drift", not above, text, {"rows": [plain(row) for row in above]})


def golden_check(candidate: ServedModel, folder: Path, live: Path | None) -> Check:
    """The candidate repeats its golden answer, and answers the golden request of the live version.

    The latter has all outputs that clients of the live version read, with finite scores. `folder`
    is that of the candidate, `live` that of the live version, if there is one.
    """

    def outputs(of: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """The recorded answer to a golden request, and the candidate's."""
        request, response = (of / EXTRA / GOLDEN / f"{n}.pb" for n in ("request", "response"))
        recorded = predict_pb2.PredictResponse.FromString(response.read_bytes())
        answer = candidate.predict(predict_pb2.PredictRequest.FromString(request.read_bytes()))
        return outputs_of(recorded), outputs_of(answer)

    missing: set[str] = set()
    finite = True
    try:
        expected, again = outputs(folder)
        largest = max(float(np.abs(again[name] - value).max()) for name, value in expected.items())
        if live is not None and (live / EXTRA / GOLDEN).is_dir():
            of_live, answer = outputs(live)
            missing = of_live.keys() - answer.keys()
            finite = bool(np.isfinite(answer[SCORES]).all())
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
    """Evaluates the signature `predict` on a split: `<label>_<metric>` of each label."""
    builder = ElwcDatasetBuilder(data, _BATCH_SIZE, tasks=tuple(labels))
    parsed = builder.build_evaluation_dataset(split)
    # `score_tasks` calls the function below once per batch, in order.
    records = iter(builder.serialized_lists(split).batch(_BATCH_SIZE))

    def score(features: dict[str, tf.Tensor]) -> tf.Tensor:
        return model.run(PREDICT, {INPUT: next(records)})[SCORES]

    batches = score_tasks(score, parsed, data.schema, dict.fromkeys(labels))
    return evaluate_tasks(batches, labels, [metric])


def _bounds(differences: np.ndarray) -> tuple[float, float, int]:
    """Mean and half-width of its one-sided interval at `LEVEL`, and the number of values."""
    count = len(differences)
    mean, error, *_ = t_interval(differences)
    if count < 2:
        return mean, float("inf"), count
    return mean, float(stdtrit(count - 1, LEVEL)) * error, count


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
        text += f"; undecided, needs about {np.ceil(needed):,.0f} lists"
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
    measured = sizes[0] / max(sizes[1], 1)
    text = f"{sizes[0]:,} bytes, {measured:.2f} times the live version's, allowed {ratio:.2f}"
    return Check("size", measured <= ratio, text, {"bytes": sizes[0], "ratio": measured})


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
    median, of_live = (float(np.median(of_model)) for of_model in seconds)
    measured = median / of_live
    text = f"{1000 * median:.2f} ms, {measured:.2f} times the live version's, allowed {ratio:.2f}"
    return Check("latency", measured <= ratio, text, {"seconds": median, "ratio": measured})
