"""Writes TFRecord files, the same bytes for the same records.

A record is its length (uint64), the masked CRC-32C of the length, the bytes, and the masked CRC-32C
of the bytes, all little-endian.
"""

from __future__ import annotations

import gzip
import os
import struct
from collections.abc import Iterable
from pathlib import Path

from google_crc32c import value as crc32c

# Twice as fast as the default level for a file a few percent larger.
_GZIP_LEVEL = 4


def masked_checksum(data: bytes) -> bytes:
    """Returns the CRC-32C as TFRecord files store it: rotated, plus a constant."""
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
