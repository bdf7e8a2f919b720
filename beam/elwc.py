"""Lists -> serialized `ExampleListWithContext`, keyed by their file."""

from __future__ import annotations

from collections.abc import Iterator

from tfr_moe.row_encoding import scope_floats
from tfr_moe.schema import FeatureSchema
from tfr_moe.wire import ids_entry, list_record

from .transforms.counting import CountingDoFn
from .transforms.grouping import RankedList
from .transforms.splits import list_hash

Shard = tuple[str, int]
Record = tuple[int, str, bytes]
"""(hash, list id, serialized list): records of a shard are sorted by hash, then by list id."""

_ZEROS = (bytes(4), b"\0\0\0\x80")  # 0.0 and -0.0


class EncodeLists(CountingDoFn):
    """(split, `RankedList`) -> ((split, shard), (hash, list id, record)).

    The shard comes from a hash of the list id, so that the same input and seed give the same files on
    any runner.

    Args:
        schema: says which values there are.
        shards: number of files of each split.
        seed: of the hash.
    """

    def __init__(self, schema: FeatureSchema, shards: dict[str, int], seed: int):
        self._schema = schema
        self._shards = shards
        self._seed = seed

    def setup(self) -> None:
        """Lays out the records on the worker."""
        schema = self._schema
        self._list_id = ids_entry(schema.list_id)
        numerics = len(schema.packed_columns("example"))
        self._label = scope_floats(schema, "example").place(numerics)

    def process(self, placed: tuple[str, RankedList]) -> Iterator[tuple[Shard, Record]]:
        """Encodes one list."""
        split, (list_id, _, (context, _), items) = placed
        bodies = [body for body, _ in items]
        record = list_record(bodies, context + self._list_id([list_id]))
        tally, label = self.tally, self._label
        tally["lists", split] += 1
        tally["items", split] += len(items)
        tally["positives", split] += sum([body[label] not in _ZEROS for body in bodies])
        tally["length", len(items)] += 1
        place = list_hash(list_id, self._seed, "order")
        yield (split, place % self._shards[split]), (place, list_id, record)
