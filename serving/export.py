"""Writes a trained model as a version that TensorFlow Serving runs as it is."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.schema import SCHEMA_FILE, FeatureSchema

from .graph import check_operations
from .signatures import PREDICT, RANK, build
from .verify import scores_in_fresh_process, scores_in_process
from .versions import versions_of
from .warmup import EXTRA, MAX_RECORDS, WARMUP_FILE, example_lists, write_warmup

DETAILS_FILE = "details.json"
WARMED = (PREDICT, RANK)
TOLERANCE = 1e-5

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
    version: int | None = None,
) -> Path:
    """Writes `out/<version>/` with the signatures of `tfr_moe.serving.signatures`.

    The version appears under its name only when it is complete and has proved itself: a fresh
    Python process that imports nothing but TensorFlow loads it and must give the scores of `model`
    within 1e-5 (absolute and relative; in mixed precision within the rounding unit of the half type)
    on the warm-up lists. Beside the model stand, in `assets.extra/`, the warm-up requests, the schema
    and the details.

    Args:
        model: maps a dict of the schema's raw features and the mask to logits [B, L], or to a dict of
            them: `scores`, and `scores_<task>` for each task.
        schema: describes the requests; its `feature_spec`s are the model's inputs.
        out: the model's folder, `MODELS/NAME`; NAME is what clients ask for.
        explanation: a model with the same inputs and the outputs `logits`, `expert_ids`,
            `expert_weights`; with it `rank` tells the experts too.
        warmup: serialized `ExampleListWithContext`s, best real ones of several sizes; the file
            takes at most 500. Without any, lists made of defaults stand in.
        details: anything worth keeping with the model (data, metrics), written as JSON.
        version: a number above 0; by default one more than the newest version in `out`.

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
    lists = list(warmup)[: MAX_RECORDS // len(WARMED)] or example_lists(schema)
    expected = scores_in_process(model, schema, lists)
    tolerance = _tolerance(model)
    serving = build(model, schema, explanation)
    with _published(final) as folder:
        tf.saved_model.save(serving.module, str(folder), signatures=serving.signatures)
        check_operations(folder)
        _write_extras(folder / EXTRA, out.resolve().name, schema, lists, details or {})
        found = scores_in_fresh_process(folder, lists, tolerance)
        _compare(expected, found, tolerance)
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


def _compare(expected: Sequence[np.ndarray], found: Sequence[np.ndarray], tolerance: float) -> None:
    for number, (ours, theirs) in enumerate(zip(expected, found, strict=True)):
        same = ours.shape == theirs.shape
        if not same or not np.allclose(ours, theirs, rtol=tolerance, atol=tolerance):
            gap = f"differ by {np.abs(ours - theirs).max():.2g}" if same else "differ in number"
            raise UserError(
                f"warm-up list {number}: the export's scores and the model's {gap} "
                f"(allowed: {tolerance:g})"
            )


def _write_extras(
    folder: Path,
    name: str,
    schema: FeatureSchema,
    lists: Sequence[bytes],
    details: Mapping[str, Any],
) -> None:
    folder.mkdir()
    write_warmup(folder / WARMUP_FILE, name, WARMED, lists)
    schema.save(folder / SCHEMA_FILE)
    about = {
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "tensorflow": tf.__version__,
        **details,
    }
    text = json.dumps(about, indent=1, default=str) + "\n"
    (folder / DETAILS_FILE).write_text(text, encoding="utf-8")
