"""TFRecord files: gzip, records in a fixed order, the same bytes for the same records."""

from __future__ import annotations

import gzip
import os
import struct
from collections.abc import Iterable
from pathlib import Path

from tfr_moe.errors import UserError
from tfr_moe.schema import shard_file

from . import progress
from .elwc import Record, Shard

# Twice as fast as the default level for a file a few percent larger.
_GZIP_LEVEL = 4


def check_checksums() -> None:
    """Refuses to start where checksums would be taken byte by byte in Python.

    Raises:
        UserError: if google-crc32c is not installed, or only its slow stand-in is.
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
    """The CRC-32C as TFRecords store it: rotated, and with a constant added."""
    from google_crc32c import value as crc32c

    crc = crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def write_records(path: Path, records: Iterable[bytes]) -> None:
    """Writes a gzip TFRecord file, which appears under its name when it is complete.

    Each record is its length (uint64), the masked CRC-32C of the length, the bytes, and the masked
    CRC-32C of the bytes, all little-endian.
    """
    masked = masked_checksum
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    # No name and no time in the header: the same records are the same bytes.
    with open(partial, "wb") as raw, gzip.GzipFile("", "wb", _GZIP_LEVEL, raw, mtime=0) as file:
        for record in records:
            length = struct.pack("<Q", len(record))
            file.write(length + masked(length) + record + masked(record))
    partial.replace(path)


def write_shard(
    shard: Shard, records: Iterable[Record], folder: str, shards: dict[str, int]
) -> str:
    """Writes one shard from records in their order; returns its name."""
    split, number = shard
    name = shard_file(split, number, shards[split])
    write_records(Path(folder, name), (record for _, _, record in records))
    progress.advance(1, "write")
    return name
