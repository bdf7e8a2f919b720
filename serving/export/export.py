"""Exports a trained model as a version that TensorFlow Serving runs as it is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console

from tfr_moe._compat import tf
from tfr_moe.data.builder import ElwcDatasetBuilder
from tfr_moe.data.folder import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.schema import SCHEMA_FILE, FeatureSchema
from tfr_moe.scorers import explanation_model
from tfr_moe.training import load_run
from tfr_moe.utils.digests import write_model_manifest
from tfr_moe.utils.io import atomic_directory

from ..versions import EXTRA, MAX_VERSION, WARMUP_FILE, versions_of
from .golden import GOLDEN, golden_list, write_golden
from .graph import check_operations
from .signatures import PREDICT, RANK, build
from .verify import reference_batches, verify
from .warmup import MAX_RECORDS, example_lists, write_warmup

DETAILS_FILE = "details.json"
WARMED = (PREDICT, RANK)
TOLERANCE = 1e-5

_ROUNDING = {"bfloat16": 2.0**-7, "float16": 2.0**-10}
_SAMPLE_LISTS = 1000
_WARMUP_LISTS = 16


def export_run(
    run: str | Path,
    out: str | Path,
    data: str | Path | None = None,
    version: int | None = None,
    console: Console | None = None,
) -> Path:
    """Exports the best epoch of a run, without noise, dropout and regularizers.

    Args:
        run: the run's folder.
        out: `MODELS/NAME`.
        data: the data set whose validation lists are the warm-up requests; None for the one that
            the run was trained on. Where that is missing, lists of defaults are used, with a
            warning.
        version: see `export_model`.
        console: receives progress; None for stderr.

    Returns:
        The folder of the version.

    Raises:
        UserError: as `load_run` and `export_model`.
    """
    console = console or Console(stderr=True)
    loaded = load_run(run)
    folder: DataFolder | None = None
    lists: list[bytes] = []
    try:
        folder = DataFolder(data if data is not None else loaded.metrics.get("data", ""))
        records = ElwcDatasetBuilder(folder).serialized_lists("validation")
        lists = [record.numpy() for record in islice(iter(records), _SAMPLE_LISTS)]
    except UserError as error:
        if data is not None:
            raise
        console.print(f"warning: no real lists for the warm-up: {error}", soft_wrap=True)
    details = {
        "config": loaded.config.model_dump(mode="json"),
        "metrics": loaded.metrics,
        "data": folder.manifest if folder is not None and folder.num_lists("train") else {},
    }
    ranker = loaded.ranker()
    with console.status(f"exporting {run} and checking it in a fresh process"):
        return export_model(
            ranker,
            loaded.schema,
            out,
            explanation=explanation_model(ranker),
            warmup=spread_by_size(lists),
            details=details,
            version=version,
        )


def spread_by_size(lists: Sequence[bytes]) -> list[bytes]:
    """At most 16 lists, evenly from the smallest record to the largest.

    Example:
        >>> spread_by_size([b"ccc", b"a", b"bb"])
        [b'a', b'bb', b'ccc']
    """
    ordered = sorted(lists, key=len)
    if len(ordered) <= _WARMUP_LISTS:
        return ordered
    step = (len(ordered) - 1) / (_WARMUP_LISTS - 1)
    return [ordered[round(i * step)] for i in range(_WARMUP_LISTS)]


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
    """Writes `out/<version>/` with the signatures of `tfr_moe.serving.export.signatures`.

    A version becomes visible only after it is complete and verified: a fresh Python process that
    imports nothing but TensorFlow loads it, and every output of every signature must agree with
    `model` (and `explanation`) within 1e-5, absolute and relative, on the warm-up lists; in mixed
    precision within the rounding unit of the half type. `assets.extra/` holds the warm-up requests,
    a golden request with its answer, the schema and the details.

    Args:
        model: maps a dict of the schema's raw features and the mask to logits [B, L], or to a dict
            of them: `scores`, and `scores_<task>` for each task.
        schema: describes the requests; its `feature_spec`s are the model's inputs.
        out: the model's folder, `MODELS/NAME`; clients request NAME.
        explanation: a model with the same inputs that returns scores and experts, see
            `tfr_moe.serving.export.signatures.build`; with it `rank` returns the experts too.
        warmup: serialized `ExampleListWithContext`s, ideally real ones of several sizes; at most
            500 are used. Without any, lists of defaults are used.
        details: facts to store with the model (data, metrics) as JSON.
        version: a number above 0; by default one more than the newest version in `out`.

    Returns:
        The folder of the version.

    Raises:
        UserError: if the version exists, if a warm-up list does not fit the schema, if the graph
            has operations that cannot serve, or if the fresh process disagrees.

    Example:
        >>> path = export_model(model, schema, "models/shop", warmup=lists)  # doctest: +SKIP
        >>> path  # doctest: +SKIP
        PosixPath('models/shop/1')
    """
    out = Path(out)
    name, final = out.resolve().name, out / str(free_version(out, version))
    lists = (list(warmup) or example_lists(schema))[: MAX_RECORDS // len(WARMED)]
    reference = reference_batches(model, schema, lists, explanation)
    tolerance = _tolerance(model)
    serving = build(model, schema, explanation)
    check_operations(serving.signatures.values())
    with atomic_directory(final) as folder:
        tf.saved_model.save(serving.module, str(folder), signatures=serving.signatures)
        largest = verify(folder, schema, reference, tolerance)
        extra = folder / EXTRA
        extra.mkdir()
        write_warmup(extra / WARMUP_FILE, name, WARMED, lists)
        schema.save(extra / SCHEMA_FILE)
        about = {
            "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "tensorflow": tf.__version__,
            "verified": {
                "lists": len(lists),
                "largest_difference": largest,
                "allowed": tolerance,
            },
            **(details or {}),
        }
        text = json.dumps(about, indent=1, default=str) + "\n"
        (extra / DETAILS_FILE).write_text(text, encoding="utf-8")
        golden = golden_list(schema, lists)
        with tf.device("/CPU:0"):
            answer = serving.signatures[RANK](inputs=tf.constant([golden]))
        arrays = {name: value.numpy() for name, value in answer.items()}
        write_golden(extra / GOLDEN, name, int(final.name), schema, golden, arrays)
        write_model_manifest(folder)
    return final


def free_version(out: Path, version: int | None = None) -> int:
    """The number of a new version: `version`, or one more than the newest.

    Args:
        out: the model's folder, `MODELS/NAME`; it need not exist.
        version: a number above 0, or None.

    Raises:
        UserError: if the version exists or is out of range.
    """
    if out.exists() and not out.is_dir():
        raise UserError(f"export {out}: is a file, a folder is needed")
    versions = versions_of(out) if out.is_dir() else []
    if version is None:
        version = max(versions, default=0) + 1
    if not 0 < version <= MAX_VERSION:
        raise UserError(f"export {out}: version must be above 0 and below 2^63, got {version}")
    if version in versions:
        raise UserError(f"export {out}: version {version} exists and is never overwritten")
    return version


def _tolerance(model: tf.keras.Model) -> float:
    """What the order of operations may change: 1e-5, or the rounding unit of a mixed precision."""
    return max(_ROUNDING.get(layer.compute_dtype, TOLERANCE) for layer in model.layers)
