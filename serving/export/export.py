"""Exports a trained model as a version that TensorFlow Serving runs as it is."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console

from tfr_moe._compat import tf
from tfr_moe.baselines import BaselineRun, open_run
from tfr_moe.data.builder import ElwcDatasetBuilder
from tfr_moe.data.folder import DataFolder
from tfr_moe.elwc.values import decode_list
from tfr_moe.errors import UserError
from tfr_moe.evaluation.evaluate import check_schema
from tfr_moe.schema import SCHEMA_FILE, FeatureSchema, QueryCategories, Scope
from tfr_moe.scorers import explanation_model
from tfr_moe.utils.console import warn
from tfr_moe.utils.digests import MODEL_MANIFEST, write_digests
from tfr_moe.utils.io import atomic_directory, plain, write_json

from ..client.protos import PredictResponse, fill_tensor
from ..client.request import RequestEncoder, predict_request, prediction_log
from ..versions import EXTRA, MAX_VERSION, RETIRED, SAVED_MODEL, WARMUP_FILE, versions_of
from .parsing import Features
from .signatures import INPUT, PREDICT, RANK, Tensors, build
from .verify import FreshProcess, reference_batches, verify

GOLDEN = "golden"
"""The folder of the golden pair, below `EXTRA`."""
MAX_RECORDS = 1000  # TensorFlow Serving does not load a model with more
_WARMED = (PREDICT, RANK)
_WARMUP_LISTS = 16
_SAMPLE_LISTS = 1000
_TOLERANCE = 1e-5
_ROUNDING = {"bfloat16": 2.0**-7, "float16": 2.0**-10}


def write_warmup(path: Path, name: str, lists: Sequence[bytes]) -> None:
    """Writes records for `predict` and `rank` of each list.

    TensorFlow Serving runs these requests before it makes a version available. Without them the
    first callers wait for what TensorFlow does at first use, and a broken version replaces the one
    that serves.
    """
    # No compression: TensorFlow Serving reads plain TFRecords only.
    with tf.io.TFRecordWriter(str(path)) as writer:
        for serialized in lists:
            for signature in _WARMED:
                writer.write(prediction_log(predict_request(name, signature, [serialized])))


def write_golden(
    folder: Path,
    name: str,
    version: int,
    schema: FeatureSchema,
    lists: Sequence[bytes],
    rank: Callable[..., Tensors],
) -> None:
    """Writes the golden pair, a request and its answer, to test clients in any language.

    It is the list of median length, without its ID and labels; `rank` is that signature. A client
    must encode `list.json` to a proto equal to `list.pb`, and a server answer `request.pb` with
    `response.pb`, within 1e-5 on a CPU. `request.json` and `response.json` are the same over REST.
    """
    context, items = decode_list(schema, sorted(lists, key=len)[len(lists) // 2])
    serialized = RequestEncoder(schema).encode(context, items)
    with tf.device("/CPU:0"):
        answer = {n: v.numpy() for n, v in rank(inputs=tf.constant([serialized])).items()}
    request = predict_request(name, RANK, [serialized])
    response = PredictResponse()
    response.model_spec.name, response.model_spec.signature_name = name, RANK
    response.model_spec.version.value = version
    for key, array in answer.items():
        fill_tensor(response.outputs[key], array)
    folder.mkdir()
    (folder / "list.pb").write_bytes(serialized)
    (folder / "request.pb").write_bytes(request.SerializeToString(deterministic=True))
    (folder / "response.pb").write_bytes(response.SerializeToString(deterministic=True))
    # A missing number is null, since JSON has no NaN.
    write_json(folder / "list.json", plain({"context": context, "items": items}))
    inputs = {INPUT: [{"b64": base64.b64encode(serialized).decode("ascii")}]}
    write_json(folder / "request.json", {"signature_name": RANK, "inputs": inputs})
    write_json(folder / "response.json", {"outputs": {k: v.tolist() for k, v in answer.items()}})


def example_lists(schema: FeatureSchema) -> list[bytes]:
    """Lists of defaults and zeros, for exports without real lists."""

    def row(scope: Scope) -> dict[str, Any]:
        required = (feature for feature in schema.select(scope) if feature.required)
        return {f.name: 0 if f.width == 1 else [0] * f.width for f in required}

    encode = RequestEncoder(schema).encode
    return [encode(row("context"), [row("example")] * size) for size in (1, 10, 60)]


def export_run(
    run: str | Path,
    out: str | Path,
    data: str | Path | None = None,
    version: int | None = None,
    console: Console | None = None,
) -> Path:
    """Exports the best epoch of a run as a version of `MODELS/NAME`, and returns its folder.

    Args:
        run: the run's folder.
        out: `MODELS/NAME`.
        data: the data set whose validation lists are the warm-up requests; None for the one that
            the run was trained on. Where that is missing, lists of defaults are used, with a
            warning.
        version: see `export_model`.
        console: receives progress; None for stderr.

    Raises:
        UserError: as `open_run` and `export_model`, and for what cannot be exported.
    """
    console = console or Console(stderr=True)
    loaded = open_run(run)
    ranker = loaded.served_model()
    folder: DataFolder | None = None
    lists: list[bytes] = []
    try:
        folder = DataFolder(data if data is not None else loaded.metrics.get("data", ""))
        check_schema(loaded, folder)
        lists = sample_lists(folder, "validation")
    except UserError as error:
        if data is not None:
            raise
        warn(console, f"no real lists for the warm-up: {error}")
    details = {
        "config": loaded.config.model_dump(mode="json"),
        "metrics": loaded.metrics,
        "data": folder.manifest if folder is not None and folder.num_lists("train") else {},
    }
    with console.status(f"exporting {run} and checking it in a fresh process"):
        return export_model(
            ranker,
            loaded.schema,
            out,
            explanation=explanation_model(ranker),
            reference=loaded.score if isinstance(loaded, BaselineRun) else None,
            warmup=lists,
            details=details,
            version=version,
            categories=loaded.categories,
        )


def sample_lists(folder: DataFolder, split: str) -> list[bytes]:
    """At most 16 of the first 1000 lists of a split, evenly from the smallest to the largest."""
    records = ElwcDatasetBuilder(folder).serialized_lists(split).as_numpy_iterator()
    ordered = sorted(islice(records, _SAMPLE_LISTS), key=len)
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
    reference: Callable[[Features], tf.Tensor] | None = None,
    warmup: Sequence[bytes] = (),
    details: Mapping[str, Any] | None = None,
    version: int | None = None,
    categories: QueryCategories | None = None,
) -> Path:
    """Writes `out/<version>/` with the signatures of `tfr_moe.serving.export.signatures`.

    A version becomes visible only after it is complete and verified: a fresh Python process that
    imports nothing but TensorFlow loads it, and every output of every signature must agree with
    `model` (and `explanation`) within 1e-5, absolute and relative, on the warm-up lists; in mixed
    precision within the rounding unit of the half type. `assets.extra/` holds the warm-up requests,
    a golden request with its answer, the schema and the details.

    Args:
        model: maps raw features and the mask to logits [B, L], or to a dict of them: `scores`, and
            `scores_<task>` for each task.
        schema: describes the requests; its `feature_spec`s are the model's inputs.
        out: the model's folder, `MODELS/NAME`; clients request NAME.
        explanation: a model of scores and experts, heaviest first; with it `rank` returns the
            experts too.
        reference: the scores that the export must agree with, if not those of `model`.
        warmup: serialized lists, ideally real ones of several sizes; at most 500 are used. Without
            any, lists of defaults are used.
        details: facts to store with the model (data, metrics) as JSON.
        version: a number above 0; by default one more than the newest version in `out`.
        categories: of the queries, where the schema needs them.

    Raises:
        UserError: if the version exists, if a warm-up list does not fit the schema, or if the fresh
            process fails or disagrees.

    Example:
        >>> path = export_model(model, schema, "models/shop", warmup=lists)  # doctest: +SKIP
        >>> path  # doctest: +SKIP
        PosixPath('models/shop/1')
    """
    out = Path(out)
    name, final = out.resolve().name, out / str(free_version(out, version))
    lists = (list(warmup) or example_lists(schema))[: MAX_RECORDS // len(_WARMED)]
    # What the order of operations may change, or the rounding unit of a mixed precision.
    tolerance = max(_ROUNDING.get(layer.compute_dtype, _TOLERANCE) for layer in model.layers)
    with FreshProcess() as process:
        expected = reference_batches(reference or model, schema, lists, explanation, categories)
        module, signatures = build(model, schema, explanation, categories)
        with atomic_directory(final) as folder:
            tf.saved_model.save(module, str(folder), signatures=signatures)
            answers = process.run(folder, [batch.lists for batch in expected])
            largest = verify(answers, schema, expected, tolerance)
            verified = {"lists": len(lists), "largest_difference": largest, "allowed": tolerance}
            extra = folder / EXTRA
            extra.mkdir()
            write_warmup(extra / WARMUP_FILE, name, lists)
            schema.save(extra / SCHEMA_FILE)
            about = {
                "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                "tensorflow": tf.__version__,
                "verified": verified,
                **(details or {}),
            }
            write_json(extra / "details.json", plain(about))
            write_golden(extra / GOLDEN, name, int(final.name), schema, lists, signatures[RANK])
            files = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
            write_digests(folder, MODEL_MANIFEST, {}, files)
    return final


def free_version(out: Path, version: int | None) -> int:
    """The number of a new version in `MODELS/NAME`: `version`, or one more than the newest."""
    if out.exists() and not out.is_dir():
        raise UserError(f"export {out}: is a file, must be a folder")
    what = ""
    if (out / SCHEMA_FILE).exists():
        what = "is a run or a data set"
    elif (out / SAVED_MODEL).exists():
        what = "is a version of a model"
    elif any(path.parts[-3] != RETIRED for path in out.glob(f"*/*/{SAVED_MODEL}")):
        what = "has models"
    if what:
        raise UserError(f"export {out}: {what}; give another folder, MODELS/NAME")
    versions = versions_of(out)
    if version is None:
        version = max(versions, default=0) + 1
    if not 0 < version <= MAX_VERSION:
        raise UserError(f"export {out}: version must be above 0 and below 2^63, got {version}")
    if version in versions:
        raise UserError(f"export {out}: version {version} exists and is never overwritten")
    return version
