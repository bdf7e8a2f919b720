"""The folder layout that TensorFlow Serving reads: MODELS/NAME/<version>/ with a SavedModel."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfr_moe.utils.failures import reading

SAVED_MODEL = "saved_model.pb"
EXTRA = "assets.extra"
WARMUP_FILE = "tf_serving_warmup_requests"
RETIRED = "retired"
"""The folder of the versions that were rolled back, below that of the model."""
MAX_VERSION = 2**63 - 1

log = logging.getLogger(__name__)


def versions_of(folder: Path) -> list[int]:
    """The versions below a model's folder, oldest first; none where there is no folder.

    A version is a sub-folder whose name is a decimal number below 2^63, the largest that TensorFlow
    Serving can address. Other numbers are ignored; each is logged once.
    """
    if not folder.is_dir():
        return []
    paths = [p for p in folder.iterdir() if p.name.isascii() and p.name.isdecimal() and p.is_dir()]
    numbers = {path: int(path.name) for path in paths}
    for path, number in [*numbers.items()]:
        if number > MAX_VERSION or str(number) != path.name:
            _log_ignored(path)
            del numbers[path]
    return sorted(numbers.values())


@functools.cache
def _log_ignored(path: Path) -> None:
    log.warning("%s: ignored; a version must be below 2^63, without leading zeros", path)


def load_meta_graph(path: Path) -> Any:
    """The `MetaGraphDef` of the SavedModel in the folder `path`."""
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel()
    with reading(f"model {path}: {SAVED_MODEL}"):
        saved.ParseFromString((path / SAVED_MODEL).read_bytes())
        return saved.meta_graphs[0]


def signatures_of(path: Path) -> dict[str, Any]:
    """The `SignatureDef`s of a SavedModel, without those that TensorFlow initializes it with."""
    named = load_meta_graph(path).signature_def.items()
    return {name: value for name, value in named if not name.startswith("__saved_model")}


def read_log(path: Path, name: str = "request log") -> Iterator[Any]:
    """The `PredictLog`s of a file, requests perhaps with a response; errors call it `name`."""
    from tensorflow_serving.apis import prediction_log_pb2

    from tfr_moe._compat import tf

    with reading(f"{name} {path}"):
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            log = prediction_log_pb2.PredictionLog.FromString(record)
            if log.HasField("predict_log"):
                yield log.predict_log
