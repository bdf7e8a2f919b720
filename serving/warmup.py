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
from tfr_moe.schema import Feature, FeatureSchema, Scope

from .tensors import predict_request

EXTRA = "assets.extra"
WARMUP_FILE = "tf_serving_warmup_requests"
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


def example_lists(schema: FeatureSchema, sizes: Sequence[int] = (1, 10, 60)) -> list[bytes]:
    """Lists of nothing but defaults, zeros and unknown ids, for exports without real ones."""
    parser, encoder = RowParser(schema), ListEncoder(schema)

    def row(scope: Scope) -> Values:
        values = {f.name: _something(f) for f in schema.select(scope) if f.is_required}
        return parser.values(scope, values)

    return [encoder.encode("", row("context"), [row("example")] * size) for size in sizes]


def _something(feature: Feature) -> Any:
    if feature.kind != "numeric":
        return "unknown"
    return 0.0 if feature.width == 1 else [0.0] * feature.width
