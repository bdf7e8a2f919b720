"""Warm-up requests: TensorFlow Serving runs them before it makes a version available.

Without them the first callers pay for what TensorFlow does at first use. The file also guards the
version that is serving now: a broken new one fails in its warm-up and never becomes available.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tfr_moe.encoding import ListEncoder, RowParser, Values
from tfr_moe.errors import UserError
from tfr_moe.schema import PAIR_SEPARATOR, Feature, FeatureSchema, Scope

from .card import sample_of
from .graph import SAVED_MODEL, load_meta_graph, signatures_of
from .tensors import predict_request

EXTRA = "assets.extra"
WARMUP_FILE = "tf_serving_warmup_requests"
_SIZES = (1, 10, 60)
MAX_RECORDS = 1000  # TensorFlow Serving refuses to load a model with more


def write_warmup(path: Path, name: str, signatures: Sequence[str], lists: Iterable[bytes]) -> int:
    """Writes one record for each list and signature, at most `MAX_RECORDS` in all.

    Returns:
        The number of records. The lists that are beyond the limit are left out.
    """
    from tensorflow_serving.apis import prediction_log_pb2

    from tfr_moe._compat import tf

    written = 0
    # No compression: TensorFlow Serving reads plain TFRecords only.
    with tf.io.TFRecordWriter(str(path)) as writer:
        for serialized in lists:
            if written + len(signatures) > MAX_RECORDS:
                break
            for signature in signatures:
                log = prediction_log_pb2.PredictionLog()
                log.predict_log.request.CopyFrom(predict_request(name, signature, [serialized]))
                writer.write(log.SerializeToString())
                written += 1
    return written


def read_warmup(path: Path) -> list[Any]:
    """The `PredictRequest`s of a warm-up file.

    Raises:
        UserError: if the file can't be read.
    """
    from tensorflow_serving.apis import prediction_log_pb2

    from tfr_moe._compat import tf

    try:
        records = list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
        logs = [prediction_log_pb2.PredictionLog.FromString(record) for record in records]
    except (tf.errors.OpError, ValueError, OSError) as error:
        raise UserError(f"warm-up file {path}: cannot be read ({type(error).__name__})") from error
    return [log.predict_log.request for log in logs if log.HasField("predict_log")]


def check_warmup(folder: Path) -> None:
    """Refuses a version that TensorFlow Serving would not load, or would load and not answer for.

    It needs `variables/`, and a warm-up file of 1 to 1,000 plain records that name signatures which the
    model has.

    Args:
        folder: of the version.

    Raises:
        UserError: naming what is wrong.
    """
    for name in (SAVED_MODEL, "variables/variables.index"):
        if not (folder / name).is_file():
            raise UserError(f"version {folder}: {name} is missing; the server would answer nothing")
    path = folder / EXTRA / WARMUP_FILE
    requests = read_warmup(path)
    if not 1 <= len(requests) <= MAX_RECORDS:
        raise UserError(
            f"warm-up file {path}: has {len(requests)} records, 1 to {MAX_RECORDS} work"
        )
    known = signatures_of(load_meta_graph(folder))
    for signature in {request.model_spec.signature_name for request in requests}:
        if signature not in known:
            there = ", ".join(sorted(known))
            raise UserError(f"warm-up file {path}: no signature {signature!r}; there are: {there}")


def fitting(
    schema: FeatureSchema, lists: Iterable[bytes], list_size: int | None, categories: Sequence[str]
) -> list[bytes]:
    """Those of the lists that have at most `list_size` items and one of the categories, where given."""
    wanted = set(categories)
    found = []
    for serialized in lists:
        (size,), keys = sample_of(schema, [serialized])
        served = not wanted or all(key in wanted for _, key in keys)
        if served and (list_size is None or size <= list_size):
            found.append(serialized)
    return found


def example_lists(
    schema: FeatureSchema, list_size: int | None = None, categories: Sequence[str] = ()
) -> list[bytes]:
    """Lists of nothing but defaults, zeros and unknown ids, for exports without real ones.

    Args:
        schema: of the lists.
        list_size: no list is longer; None for any size.
        categories: keys `parent > child`; the lists are of the first one. Empty for an unknown one.
    """
    parser, encoder = RowParser(schema), ListEncoder(schema)
    named: dict[str, str] = {}
    if categories and schema.hierarchy is not None:
        names = categories[0].split(PAIR_SEPARATOR, 1)
        named = dict(zip((schema.hierarchy.parent, schema.hierarchy.child), names, strict=True))

    def row(scope: Scope) -> Values:
        values = {f.name: _something(f) for f in schema.select(scope) if f.is_required}
        return parser.values(scope, values | (named if scope == "context" else {}))

    sizes = sorted({min(size, list_size or size) for size in _SIZES})
    return [encoder.encode("", row("context"), [row("example")] * size) for size in sizes]


def _something(feature: Feature) -> Any:
    if feature.kind != "numeric":
        return "unknown"
    return 0.0 if feature.width == 1 else [0.0] * feature.width
