"""Lists that are already records: files of `ExampleListWithContext`, as `build` writes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema

from .records import masked_checksum
from .sources.files import Report, open_file, told

ENDINGS = (".tfrecord", ".tfrecord.gz", ".tfrecords", ".tfrecords.gz")


def is_records(pattern: str) -> bool:
    """Whether a pattern's ending says that its files are TFRecords."""
    return pattern.lower().endswith(ENDINGS)


def _exactly(path: str, file: IO[bytes], size: int) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise UserError(f"{path}: the file is cut off")
    return data


def _records(path: str, file: IO[bytes]) -> Iterator[bytes]:
    number = 0
    while head := file.read(12):
        number += 1
        if len(head) != 12:
            raise UserError(f"{path}: the file is cut off")
        length = int.from_bytes(head[:8], "little")
        if masked_checksum(head[:8]) != head[8:]:
            raise UserError(f"{path}, record {number}: not a TFRecord, or damaged")
        data = _exactly(path, file, length)
        if masked_checksum(data) != _exactly(path, file, 4):
            raise UserError(f"{path}, record {number}: damaged, its checksum is wrong")
        yield data


def read_records(path: str, size: int, report: Report) -> Iterator[tuple[int, bytes]]:
    """(number from 1, record) of a TFRecord file, plain or gzip.

    Raises:
        UserError: if the file can't be read to its end, naming the file and the record.
    """
    with open_file(path) as file:
        yield from told(enumerate(_records(path, file), start=1), file, size, report)


class ListReader:
    """Finds list id and item ids in a serialized list.

    Args:
        schema: names the list id.
        item_id: the item's feature that tells items apart.
    """

    def __init__(self, schema: FeatureSchema, item_id: str):
        from tensorflow_serving.apis import input_pb2

        self._parse = input_pb2.ExampleListWithContext.FromString
        self._list_id, self._item_id = schema.list_id, item_id

    def __call__(self, record: bytes) -> tuple[str, list[str]]:
        """(list id, item ids).

        Raises:
            UserError: if it is no such list, or lacks one of the ids.
        """
        from google.protobuf.message import DecodeError

        try:
            message = self._parse(record)
        except DecodeError:
            raise UserError("not an ExampleListWithContext") from None
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
            raise UserError(f"{where}: feature {name!r} must be one id, there are {len(values)}")
        return values[0].decode("utf-8", "replace")
