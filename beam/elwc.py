"""Lists -> serialized `ExampleListWithContext`, keyed by their file."""

from __future__ import annotations

from collections.abc import Iterator

from tfr_moe.encoding import ListEncoder
from tfr_moe.schema import FeatureSchema

from .transforms.counting import CountingDoFn
from .transforms.grouping import RankedList
from .transforms.parsing import context_names, example_names
from .transforms.splits import list_hash

Shard = tuple[str, int]
Record = tuple[int, str, bytes]
"""(hash, list id, serialized list): records of a shard are sorted by hash, then by list id."""


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
        """Builds the encoder on the worker."""
        self._encoder = ListEncoder(self._schema)
        self._context = context_names(self._schema)
        self._example = example_names(self._schema)
        self._label = self._example.index(self._schema.label)

    def process(self, placed: tuple[str, RankedList]) -> Iterator[tuple[Shard, Record]]:
        """Encodes one list."""
        split, (list_id, _, context, items) = placed
        names, label = self._example, self._label
        record = self._encoder.encode(
            list_id,
            dict(zip(self._context, context, strict=True)),
            [dict(zip(names, item, strict=True)) for item in items],
        )
        tally = self.tally
        tally["lists", split] += 1
        tally["items", split] += len(items)
        tally["positives", split] += sum(item[label] > 0 for item in items)
        tally["length", len(items)] += 1
        place = list_hash(list_id, self._seed, "order")
        yield (split, place % self._shards[split]), (place, list_id, record)
