"""Records a sample of requests and answers, for `tfr-moe check --requests`."""

from __future__ import annotations

import random
import struct
import threading
from pathlib import Path

from tfr_moe.elwc.tfrecord import check_checksums, masked_checksum
from tfr_moe.elwc.wire import varint
from tfr_moe.errors import UserError

from .protos import PredictRequest, PredictResponse

_PREDICT_LOG = b"\x32"  # field 6 of PredictionLog, bytes
_REQUEST, _RESPONSE = b"\x0a", b"\x12"  # fields 1 and 2 of PredictLog


class RequestRecorder:
    """Appends `PredictionLog`s to a TFRecord file, as warm-up files and request logs have them.

    TensorFlow Serving needs a log collector of one's own for that. A record is written with one
    call in append mode; threads may share a recorder, and processes need a file each.

    Args:
        path: the file; its folder exists.
        share: probability that a request is recorded.

    Raises:
        UserError: if the share is not in (0, 1], or google-crc32c is missing.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "requests.tfrecord"
        >>> recorder = RequestRecorder(path)
        >>> recorder(PredictRequest(), PredictResponse())  # of RankingClient(recorder=recorder)
        >>> path.stat().st_size  # 6 bytes and 16 of their frame
        22
    """

    def __init__(self, path: str | Path, share: float = 1.0):
        if not 0 < share <= 1:
            raise UserError(f"share must be above 0 and at most 1. Received: share={share}")
        check_checksums()
        self._path, self._share = Path(path), share
        self._lock = threading.Lock()

    def __call__(self, request: PredictRequest, response: PredictResponse) -> None:
        """Records a `PredictRequest` and its `PredictResponse`, or not."""
        with self._lock:
            if random.random() >= self._share:
                return
            parts = [(_REQUEST, request), (_RESPONSE, response)]
            log = b"".join(_field(tag, part.SerializeToString()) for tag, part in parts)
            record = _field(_PREDICT_LOG, log)
            length = struct.pack("<Q", len(record))
            framed = length + masked_checksum(length) + record + masked_checksum(record)
            try:
                with open(self._path, "ab", buffering=0) as file:
                    file.write(framed)
            except OSError as error:
                raise UserError(f"{self._path}: cannot be written ({error.strerror})") from error


def _field(tag: bytes, content: bytes) -> bytes:
    return tag + varint(len(content)) + content
