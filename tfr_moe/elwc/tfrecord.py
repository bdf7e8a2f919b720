"""TFRecord files: deterministic gzip writer, checked reader.

A record is its length (uint64), the masked CRC-32C of the length, the bytes, and the masked CRC-32C
of the bytes, all little-endian.
"""

from __future__ import annotations

import gzip
import math
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema

ENDINGS = (".tfrecord", ".tfrecord.gz", ".tfrecords", ".tfrecords.gz")

# Twice as fast as the default level for a file a few percent larger.
_GZIP_LEVEL = 4


def is_tfrecord(pattern: str) -> bool:
    """Returns whether the ending of a path or pattern is that of TFRecord files."""
    return pattern.lower().endswith(ENDINGS)


def check_checksums() -> None:
    """Checks that CRC-32C is computed by a C extension.

    Raises:
        UserError: if google-crc32c is missing, or only has its slow Python implementation.
    """
    try:
        import google_crc32c
    except ImportError:
        raise UserError(
            "TFRecord files need the checksums of google-crc32c: pip install google-crc32c"
        ) from None
    if google_crc32c.implementation == "python":
        raise UserError(
            "google-crc32c runs without its C extension and would take hours: "
            "pip install --force-reinstall google-crc32c"
        )


def masked_checksum(data: bytes) -> bytes:
    """Returns the CRC-32C as TFRecord files store it: rotated, plus a constant."""
    from google_crc32c import value as crc32c

    crc = crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def write_records(path: Path, records: Iterable[bytes]) -> None:
    """Writes a gzip TFRecord file, which appears under its name only when complete.

    The same records give the same bytes: the gzip header has neither name nor time.
    """
    masked = masked_checksum
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with open(partial, "wb") as raw, gzip.GzipFile("", "wb", _GZIP_LEVEL, raw, mtime=0) as file:
        for record in records:
            length = struct.pack("<Q", len(record))
            file.write(length + masked(length) + record + masked(record))
    partial.replace(path)


def read_records(file: IO[bytes], name: str) -> Iterator[bytes]:
    """Yields the records of an open, uncompressed TFRecord stream.

    Args:
        file: the stream.
        name: of the file, for messages.

    Raises:
        UserError: if the stream is truncated or a checksum is wrong, naming file and record.
    """
    number = 0
    while head := file.read(12):
        number += 1
        if len(head) != 12:
            raise UserError(f"{name}: the file is truncated")
        length = int.from_bytes(head[:8], "little")
        if masked_checksum(head[:8]) != head[8:]:
            raise UserError(f"{name}, record {number}: not a TFRecord, or corrupt")
        data = _exactly(name, file, length)
        if masked_checksum(data) != _exactly(name, file, 4):
            raise UserError(f"{name}, record {number}: corrupt, its checksum is wrong")
        yield data


def _exactly(name: str, file: IO[bytes], size: int) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise UserError(f"{name}: the file is truncated")
    return data


class ListIds:
    """Reads list ID and item IDs of a serialized `ExampleListWithContext`, and checks its numbers.

    Args:
        schema: names the list ID and the numeric features.
        item_id: name of the example feature with the item ID.
    """

    def __init__(self, schema: FeatureSchema, item_id: str):
        from tensorflow_serving.apis import input_pb2

        self._parse = input_pb2.ExampleListWithContext.FromString
        self._list_id, self._item_id = schema.list_id, item_id
        self._context_numbers = schema.stored_numbers("context")
        self._example_numbers = schema.stored_numbers("example")

    def __call__(self, record: bytes) -> tuple[str, list[str]]:
        """Returns (list ID, item IDs).

        Raises:
            UserError: if the bytes are no such message, an ID is missing, or a number is NaN or
                infinite.
        """
        from google.protobuf.message import DecodeError

        try:
            message = self._parse(record)
        except DecodeError:
            raise UserError("not an ExampleListWithContext") from None
        _check_finite(message.context, self._context_numbers, "context")
        for number, example in enumerate(message.examples, start=1):
            _check_finite(example, self._example_numbers, f"item {number}")
        items = [
            self._id(example, self._item_id, f"item {number}")
            for number, example in enumerate(message.examples, start=1)
        ]
        return self._id(message.context, self._list_id, "context"), items

    @staticmethod
    def _id(example: Any, name: str, where: str) -> str:
        feature = example.features.feature
        values: list[bytes] = list(feature[name].bytes_list.value) if name in feature else []
        if len(values) != 1:
            raise UserError(f"{where}: feature {name!r} must hold one ID, it holds {len(values)}")
        return values[0].decode("utf-8", "replace")


def _check_finite(example: Any, stored: Mapping[str, Sequence[str]], where: str) -> None:
    features = example.features.feature
    for name, columns in stored.items():
        values = features[name].float_list.value if name in features else ()
        for number, value in enumerate(values):
            if not math.isfinite(value):
                column = columns[number] if number < len(columns) else name
                raise UserError(f"{where}: column {column!r} holds a NaN or infinite value")
