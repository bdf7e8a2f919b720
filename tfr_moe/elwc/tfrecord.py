"""TFRecord files: deterministic gzip writer, checked reader.

A record is its length (uint64), the masked CRC-32C of the length, the bytes, and the masked CRC-32C
of the bytes, all little-endian.
"""

from __future__ import annotations

import gzip
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from tfr_moe.errors import UserError

# Twice as fast as the default level for a file a few percent larger.
_GZIP_LEVEL = 4


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
            "google-crc32c runs without its C extension and would take hours: not enough memory to "
            "load it, or not installed (pip install --force-reinstall google-crc32c)"
        )


def masked_checksum(data: bytes) -> bytes:
    """Returns the CRC-32C as TFRecord files store it: rotated, plus a constant."""
    from google_crc32c import value as crc32c

    crc = crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def framed(record: bytes) -> bytes:
    """Returns a record as it is in a file, with length and checksums."""
    length = struct.pack("<Q", len(record))
    return length + masked_checksum(length) + record + masked_checksum(record)


def write_records(path: Path, records: Iterable[bytes]) -> None:
    """Writes a gzip TFRecord file, which appears under its name only when complete.

    The same records give the same bytes: the gzip header has neither name nor time.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with open(partial, "wb") as raw, gzip.GzipFile("", "wb", _GZIP_LEVEL, raw, mtime=0) as file:
        for record in records:
            file.write(framed(record))
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
