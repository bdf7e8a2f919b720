"""Writes a trained model as a version that TensorFlow Serving runs as it is."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.schema import SCHEMA_FILE, FeatureSchema

from .categories import CategoryGuard
from .compare import calls_of, check_answers
from .golden import GOLDEN, golden_list, write_golden
from .graph import check_operations
from .ranked import SCORES
from .reference import Answer, answers_in_process
from .signatures import INPUT, PREDICT, RANK, build
from .verify import Call, answers_in_fresh_process
from .versions import versions_of
from .warmup import (
    EXTRA,
    MAX_RECORDS,
    WARMUP_FILE,
    check_warmup,
    example_lists,
    fitting,
    write_warmup,
)

DETAILS_FILE = "details.json"
CARD_FILE = "model_card.md"
WARMED = (PREDICT, RANK)
TOLERANCE = 1e-5


class Truth(NamedTuple):
    """What an export must answer.

    Attributes:
        model: gives the scores.
        explanation: tells the experts, None where the export doesn't.
        tolerance: by how much answers may differ, absolute and relative.
        of_largest: whether the tolerance is a share of the largest score.
    """

    model: tf.keras.Model
    explanation: tf.keras.Model | None
    tolerance: float = TOLERANCE
    of_largest: bool = False

    def allowed(self, answers: Sequence[Answer]) -> float:
        """The tolerance for these answers."""
        if not self.of_largest:
            return self.tolerance
        scores = [v for a in answers for name, v in a.items() if name.startswith(SCORES)]
        return self.tolerance * max(float(np.abs(values).max(initial=0.0)) for values in scores)


_ROUNDING = {"bfloat16": 2.0**-7, "float16": 2.0**-10}
_PARTIAL = ".partial-"  # not a number, so TensorFlow Serving takes no notice of it
_ABANDONED_SECONDS = 3600.0


def export_model(
    model: tf.keras.Model,
    schema: FeatureSchema,
    out: str | Path,
    *,
    explanation: tf.keras.Model | None = None,
    warmup: Sequence[bytes] = (),
    details: Mapping[str, Any] | None = None,
    card: str = "",
    version: int | None = None,
    truth: Truth | None = None,
    list_size: int | None = None,
    categories: Sequence[str] = (),
    refuse_others: bool = True,
    tracing: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Path:
    """Writes `out/<version>/` with the signatures of `tfr_moe.serving.signatures`.

    The version appears under its name only when it is complete and has proved itself: a fresh
    Python process that imports nothing but TensorFlow loads it, and every output of every signature
    must be that of `model` (and `explanation`) within 1e-5 (absolute and relative; in mixed precision
    within the rounding unit of the half type) on the warm-up lists. Beside the model stand, in
    `assets.extra/`, the warm-up requests, a golden request and its answer (`tfr_moe.serving.golden`),
    the schema, the details and the model card.

    Args:
        model: maps a dict of the schema's raw features and the mask to logits [B, L], or to a dict of
            them: `scores`, and `scores_<task>` for each task.
        schema: describes the requests; its `feature_spec`s are the model's inputs.
        out: the model's folder, `MODELS/NAME`; NAME is what clients ask for.
        explanation: a model with the same inputs that tells scores and experts, see
            `tfr_moe.serving.signatures.build`; with it `rank` tells the experts too.
        warmup: serialized `ExampleListWithContext`s, best real ones of several sizes; the file
            takes at most 500. Without any, lists made of defaults stand in.
        details: anything worth keeping with the model (data, metrics), written as JSON.
        card: the model card, Markdown; none is written where it is empty.
        version: a number above 0; by default one more than the newest version in `out`.
        truth: what the export is compared with, where `model` is not the one that was trained.
        list_size: see `tfr_moe.serving.signatures.build`; longer warm-up lists are left out.
        categories: keys `parent > child` of the categories that the export is for; lists of others are
            left out of the warm-up. Empty for all.
        refuse_others: whether lists of other categories are refused.
        tracing: see `tfr_moe.serving.signatures.build`.

    Returns:
        The folder of the version.

    Raises:
        UserError: if the version exists, if a warm-up list does not fit the schema, if the graph
            has operations that can't serve, or if the fresh process disagrees.

    Example:
        >>> path = export_model(model, schema, "models/shop", warmup=lists)  # doctest: +SKIP
        >>> path  # doctest: +SKIP
        PosixPath('models/shop/1')
    """
    out = Path(out)
    final = out / str(_free_version(out, version))
    truth = truth or Truth(model, explanation, _tolerance(model))
    lists = list(warmup)
    if list_size or categories:
        lists = fitting(schema, lists, list_size, categories)
    if not lists:
        lists = example_lists(schema, list_size, categories)
    lists = lists[: MAX_RECORDS // len(WARMED)]
    expected = answers_in_process(truth.model, schema, lists, truth.explanation)
    tolerance = truth.allowed(expected)
    guard = CategoryGuard(schema, categories) if categories and refuse_others else None
    serving = build(model, schema, explanation, list_size, guard, tracing)
    with _published(final) as folder:
        tf.saved_model.save(serving.module, str(folder), signatures=serving.signatures)
        check_operations(folder)
        golden = golden_list(schema, lists)
        calls = [*calls_of(schema, lists), Call(RANK, {INPUT: np.array([golden], object)})]
        *found, answer = answers_in_fresh_process(folder, calls)
        gap = check_answers(truth.model, schema, lists, expected, found, tolerance)
        verified = {"lists": len(lists), "largest_difference": gap, "allowed": tolerance}
        extra = folder / EXTRA
        _write_extras(extra, out.resolve().name, schema, lists, details or {}, verified, card)
        write_golden(extra / GOLDEN, out.resolve().name, int(final.name), schema, golden, answer)
        check_warmup(folder)
    return final


def _free_version(out: Path, version: int | None) -> int:
    if out.exists() and not out.is_dir():
        raise UserError(f"export {out}: is a file, a folder is needed")
    taken = versions_of(out) if out.is_dir() else []
    if version is None:
        return max(taken, default=0) + 1
    if version < 1:
        raise UserError(f"export {out}: version must be above 0, got {version}")
    if version in taken:
        raise UserError(f"export {out}: version {version} exists and is never overwritten")
    return version


@contextmanager
def _published(final: Path) -> Iterator[Path]:
    """Yields a hidden folder beside `final` that takes its name if nothing fails, and goes if."""
    folder = final.parent / f"{_PARTIAL}{final.name}-{os.getpid()}"
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        _sweep(final.parent)
        folder.mkdir()
    except OSError as error:
        raise UserError(f"export {final.parent}: cannot be written ({error.strerror})") from error
    try:
        yield folder
        try:
            folder.rename(final)
        except OSError as error:
            raise UserError(f"export {final.parent}: version {final.name} exists now") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(out: Path) -> None:
    """Removes what exports that were killed have left; a younger folder may be another's work."""
    for folder in out.glob(f"{_PARTIAL}*"):
        if time.time() - folder.stat().st_mtime > _ABANDONED_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)


def _tolerance(model: tf.keras.Model) -> float:
    """What the order of operations may change: 1e-5, or the rounding unit of a mixed precision."""
    return max(_ROUNDING.get(layer.compute_dtype, TOLERANCE) for layer in model.layers)


def _write_extras(
    folder: Path,
    name: str,
    schema: FeatureSchema,
    lists: Sequence[bytes],
    details: Mapping[str, Any],
    verified: Mapping[str, Any],
    card: str,
) -> None:
    folder.mkdir()
    write_warmup(folder / WARMUP_FILE, name, WARMED, lists)
    schema.save(folder / SCHEMA_FILE)
    about = {
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "tensorflow": tf.__version__,
        "verified": verified,
        **details,
    }
    text = json.dumps(about, indent=1, default=str) + "\n"
    (folder / DETAILS_FILE).write_text(text, encoding="utf-8")
    if card:
        (folder / CARD_FILE).write_text(card, encoding="utf-8")
