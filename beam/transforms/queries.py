"""Categories of queries by a classifier, for rows that have none (Xiao et al., section III-A)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.ml.inference.base import KeyedModelHandler, RunInference

from tfr_moe.encoding import is_missing
from tfr_moe.errors import UserError

from ..inference import QueryCategories, QueryCategory
from ..sources import RawRow
from .counting import COUNTS, CountingDoFn
from .joining import JoinByKey, key_of

_BATCH = 256


class Assigned(NamedTuple):
    """Batches of rows with their categories, and counts."""

    batches: beam.PCollection
    counts: beam.PCollection


class AssignCategories(beam.PTransform):
    """Batches of rows -> `Assigned`: rows without a child category get that of their query.

    Each different query is classified once. A category that the classifier is less sure of than
    `least_probability` is not taken, and such rows stay without one: whether that is allowed is for the
    schema to say. The parent is the classifier's, which has it from the tree; it replaces a row's own.

    Args:
        model: folder of the SavedModel, see `tfr_moe.query_categories`.
        query: the column with the query.
        child, parent: the columns to fill.
        least_probability: of a category that is taken.

    Raises:
        UserError: if there is no model in the folder.
    """

    def __init__(self, model: str, query: str, child: str, parent: str, least_probability: float):
        super().__init__()
        if not Path(model, "saved_model.pb").is_file():
            raise UserError(
                f"--set query_model {model}: has no saved_model.pb; `tfr-moe train-queries` makes one"
            )
        self.columns = (child, parent)
        self._handler = KeyedModelHandler(QueryCategories(model, _BATCH))
        self._query = query
        self._filler = _FillCategories(query, self.columns, least_probability)

    def expand(self, batches: beam.PCollection) -> Assigned:
        """Classifies the queries and joins the answers in."""
        asked = batches | "Queries" >> beam.ParDo(
            _OpenQueries(self._query, self.columns[0])
        ).with_outputs(COUNTS, main="queries")
        known = (
            asked.queries
            | "Once" >> beam.Distinct()
            | "Pair" >> beam.Map(lambda query: (query, query))
            | "Classify" >> RunInference(self._handler)
        )
        filled = (batches, known) | "Fill" >> JoinByKey(self._filler)
        return Assigned(filled, asked[COUNTS])


class _OpenQueries(CountingDoFn):
    """Batches -> queries of the rows without a category, each once a batch."""

    def __init__(self, query: str, child: str):
        self._query, self._child = query, child

    def process(self, batch: list[RawRow]) -> Iterator[str]:
        found = set()
        for row in batch:
            query = self._asked(row)
            if query is not None:
                self.tally["noted", "rows that asked for their query's category"] += 1
                found.add(query)
        yield from sorted(found)

    def _asked(self, row: RawRow) -> str | None:
        if row.error is not None or not isinstance(row.values, Mapping):
            return None
        return key_of(row, self._query) if is_missing(row.values.get(self._child)) else None


class _FillCategories:
    """Makes a row's categories of its query's; see `joining.Answers`."""

    def __init__(self, query: str, columns: tuple[str, str], least_probability: float):
        self.key = query
        self.row_columns = list(columns)
        self.names = list(columns)
        self._least = least_probability

    def lines(self, events: Iterable[QueryCategory]) -> QueryCategory | None:
        """The query's category, if the classifier is sure enough of it."""
        found = next(iter(events), None)
        return found if found is not None and found.probability >= self._least else None

    def values(
        self, lines: QueryCategory | None, time: float, row: Sequence[Any]
    ) -> tuple[Any, ...]:
        """The row's own categories where it has one, else those of its query."""
        own_child, own_parent = row
        if lines is None or not is_missing(own_child):
            return own_child, own_parent
        return lines.child, lines.parent or own_parent
