"""Raw rows -> typed rows, keyed by their list; what does not fit goes to the rejects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam

from tfr_moe.encoding import RowError, RowParser
from tfr_moe.schema import FeatureSchema

from ..sources import RawRow
from .counting import CountingDoFn
from .grouping import Gathered, GatherList, Item

REJECTS = "rejects"


def context_names(schema: FeatureSchema) -> list[str]:
    """What `Item.context` holds, in order."""
    return [feature.name for feature in schema.select("context")]


def example_names(schema: FeatureSchema) -> list[str]:
    """What `Item.example` holds, in order: features, labels, position, weight."""
    extras = [*schema.labels, *(c for c in (schema.position, schema.weight) if c)]
    return [feature.name for feature in schema.select("example")] + extras


def kind_of(reason: str) -> str:
    """A reason without the value at fault, so that the manifest has few of them."""
    return reason.split(", got ")[0].split(" (")[0]


class ParseRows(CountingDoFn):
    """Batches of `RawRow` -> (list id, `Gathered`) of the rows of one list in a batch.

    Rejects are tagged `rejects`: (file, line, reason, row), the row as a mapping of column to raw value.

    Args:
        schema: says what a row must have.
        gather: joins the rows of a list.
    """

    def __init__(self, schema: FeatureSchema, gather: GatherList):
        self._schema = schema
        self._gather = gather

    def setup(self) -> None:
        """Builds the parser on the worker."""
        self._parser = RowParser(self._schema)
        self._context = context_names(self._schema)
        self._example = example_names(self._schema)

    def process(self, batch: list[RawRow]) -> Iterator[Any]:
        """Parses a batch."""
        lists: dict[str, Gathered] = {}
        add, nothing = self._gather.add_item, self._gather.create_accumulator
        for raw in batch:
            reason = raw.error
            if reason is None:
                try:
                    list_id, item = self._item(raw)
                except RowError as error:
                    reason = str(error)
            if reason is not None:
                self.tally["rejects", kind_of(reason)] += 1
                reject = (raw.file, raw.line, reason, raw.values)
                yield beam.pvalue.TaggedOutput(REJECTS, reject)
                continue
            lists[list_id] = add(lists.get(list_id) or nothing(), item)
        self.tally["rows", "read"] += len(batch)
        yield from lists.items()

    def _item(self, raw: RawRow) -> tuple[str, Item]:
        row = self._parser.row(raw.values)  # type: ignore[arg-type]
        context, example = row.context, row.example
        position = example[self._schema.position] if self._schema.position else 0.0
        return row.list_id, Item(
            position,
            (raw.file, raw.line, raw.order),
            row.time,
            tuple([context[name] for name in self._context]),
            tuple([example[name] for name in self._example]),
        )
