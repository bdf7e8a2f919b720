"""Raw rows -> typed rows, keyed by their list; what does not fit goes to the rejects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import apache_beam as beam

from tfr_moe.encoding import RowError, RowParser
from tfr_moe.schema import FeatureSchema

from ..sources import RawRow
from .counting import CountingDoFn

REJECTS = "rejects"


class Item(NamedTuple):
    """One typed row on its way into a list.

    Attributes:
        position: place at which the item was shown; 0 without a position column.
        place: (file, line) of the row, by which ties and conflicts are settled.
        time: Unix seconds or None.
        context: values of the context features, in the schema's order.
        example: values in the order of `example_names`.
    """

    position: float
    place: tuple[int, int]
    time: float | None
    context: tuple[Any, ...]
    example: tuple[Any, ...]


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
    """`RawRow` -> (list id, `Item`); rejects are tagged `rejects`.

    A reject is (file, line, reason, row), the row as a mapping of column to raw value.
    """

    def __init__(self, schema: FeatureSchema):
        self._schema = schema

    def setup(self) -> None:
        """Builds the parser on the worker."""
        self._parser = RowParser(self._schema)
        self._context = context_names(self._schema)
        self._example = example_names(self._schema)

    def process(self, raw: RawRow) -> Iterator[Any]:
        """Parses one row."""
        self.tally["rows", "read"] += 1
        reason = raw.error
        if reason is None:
            try:
                row = self._parser.row(raw.values)  # type: ignore[arg-type]
            except RowError as error:
                reason = str(error)
        if reason is not None:
            self.tally["rejects", kind_of(reason)] += 1
            reject = (raw.file, raw.line, reason, raw.values)
            yield beam.pvalue.TaggedOutput(REJECTS, reject)
            return
        context, example = row.context, row.example
        position = example[self._schema.position] if self._schema.position else 0.0
        yield (
            row.list_id,
            Item(
                position,
                (raw.file, raw.line),
                row.time,
                tuple([context[name] for name in self._context]),
                tuple([example[name] for name in self._example]),
            ),
        )
