"""Warm-up requests: TensorFlow Serving runs them before it makes a version available.

Without them the first callers wait for what TensorFlow does at first use. The file also protects
the version that serves now: a broken new one fails in its warm-up and never becomes available.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.elwc.encoder import ListEncoder
from tfr_moe.elwc.values import RowParser, Values
from tfr_moe.schema import Feature, FeatureSchema, Scope

from ..client.request import predict_request

_SIZES = (1, 10, 60)
MAX_RECORDS = 1000  # TensorFlow Serving does not load a model with more


def write_warmup(path: Path, name: str, signatures: Sequence[str], lists: Iterable[bytes]) -> int:
    """Writes one record for each list and signature, at most `MAX_RECORDS` in all.

    Returns:
        The number of records. Lists beyond the limit are left out.
    """
    from tensorflow_serving.apis import prediction_log_pb2

    written = 0
    # No compression: TensorFlow Serving reads plain TFRecords only.
    with tf.io.TFRecordWriter(str(path)) as writer:
        for serialized in lists:
            if written + len(signatures) > MAX_RECORDS:
                break
            for signature in signatures:
                log = prediction_log_pb2.PredictionLog()
                request = predict_request(name, signature, [serialized])
                log.predict_log.request.ParseFromString(request.SerializeToString())
                writer.write(log.SerializeToString())
                written += 1
    return written


def example_lists(schema: FeatureSchema) -> list[bytes]:
    """Lists of defaults, zeros and unknown ids, for exports without real lists."""
    parser, encoder = RowParser(schema), ListEncoder(schema)

    def row(scope: Scope) -> Values:
        required = {f.name: _placeholder(f) for f in schema.select(scope) if f.required}
        return parser.values(scope, required)

    return [encoder.encode("", row("context"), [row("example")] * size) for size in _SIZES]


def _placeholder(feature: Feature) -> Any:
    if feature.kind != "numeric":
        return "unknown"
    return 0.0 if feature.width == 1 else [0.0] * feature.width
