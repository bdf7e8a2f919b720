"""Raw rows -> typed rows, keyed by their list; what does not fit goes to the rejects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import apache_beam as beam

from tfr_moe.encoding import RowError
from tfr_moe.row_encoding import EncodedRow, RowEncoder
from tfr_moe.schema import FeatureSchema

from ..sources import RawRow
from .counting import CountingDoFn
from .grouping import GatherList, ListBuilder

REJECTS = "rejects"
Encoder = Callable[[FeatureSchema], Callable[[Mapping[str, Any]], EncodedRow]]


def kind_of(reason: str) -> str:
    """A reason without the value at fault, so that the manifest has few of them."""
    return reason.split(", got ")[0].split(" (")[0]


class ParseRows(CountingDoFn):
    """Batches of `RawRow` -> (list id, `Gathered`) of the rows of one list in a batch.

    Rejects are tagged `rejects`: (file, line, reason, row), the row as a mapping of column to raw value.

    Args:
        schema: says what a row must have.
        gather: joins the rows of a list.
        encoder: makes, from the schema, what encodes a row.
    """

    def __init__(self, schema: FeatureSchema, gather: GatherList, encoder: Encoder = RowEncoder):
        self._schema = schema
        self._gather = gather
        self._encoder = encoder

    def setup(self) -> None:
        """Builds the encoder on the worker."""
        self._encode = self._encoder(self._schema)

    def process(self, batch: list[RawRow]) -> Iterator[Any]:
        """Parses a batch."""
        lists: dict[str, ListBuilder] = {}
        encode = self._encode
        for file, line, values, reason, order in batch:
            if reason is None:
                try:
                    row = encode(values)  # type: ignore[arg-type]
                except RowError as error:
                    reason = str(error)
            if reason is not None:
                self.tally["rejects", kind_of(reason)] += 1
                yield beam.pvalue.TaggedOutput(REJECTS, (file, line, reason, values))
                continue
            builder = lists.get(row.list_id)
            if builder is None:
                builder = lists[row.list_id] = self._gather.builder()
            builder.add((file, line, order), row)
        self.tally["rows", "read"] += len(batch)
        for list_id, builder in lists.items():
            yield list_id, builder.gathered()
