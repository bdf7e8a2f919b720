"""The lists of recorded requests.

TensorFlow Serving's request log has a `PredictionLog` for each request, as warm-up files and the
client's recordings do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.data.folder import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.schema import query_categories

from ..versions import read_log
from .parsing import RequestParser
from .signatures import DEFAULT, INPUT, PREDICT, RANK

Arrays = Mapping[str, np.ndarray]

_BATCH_SIZE = 256


def lists_of(request: Any) -> list[bytes]:
    """The serialized lists of a `PredictRequest` for `predict` or `rank`; none of others."""
    signature = request.model_spec.signature_name or DEFAULT
    if signature not in (DEFAULT, PREDICT, RANK) or INPUT not in request.inputs:
        return []
    return tf.make_ndarray(request.inputs[INPUT]).tolist()


def recorded_batches(requests: str | Path, data: DataFolder) -> Iterator[Arrays]:
    """Parses recorded lists by the schema of a data set, with the categories that it gives them.

    Args:
        requests: TFRecord file of `PredictionLog`s.
        data: the data set.

    Yields:
        Features [B, n] and [B, L, n] and the mask [B, L] of up to 256 lists.

    Raises:
        UserError: for a file that cannot be read, or has lists of another schema.
    """
    parser, batch = RequestParser(data.schema, query_categories(data.path, data.schema)), []
    for log in read_log(Path(requests)):
        batch += lists_of(log.request)
        while len(batch) >= _BATCH_SIZE:
            yield _parsed(parser, batch[:_BATCH_SIZE], f"requests {requests}")
            del batch[:_BATCH_SIZE]
    if batch:
        yield _parsed(parser, batch, f"requests {requests}")


def _parsed(parser: RequestParser, lists: Sequence[bytes], where: str) -> Arrays:
    try:
        features = parser.lists(tf.constant(lists))
    except tf.errors.OpError as error:
        reason = " ".join(str(error.message).split())
        raise UserError(f"{where}: a list does not fit the schema: {reason}") from error
    return {name: value.numpy() for name, value in features.items()}
