"""Derives the category of rows from their query, by a classifier (Xiao et al., section III-A)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from tfr_moe.beam.inference import SavedModel
from tfr_moe.beam.rows import CountingDoFn, RawRow
from tfr_moe.beam.transforms.joins import join_key
from tfr_moe.elwc.values import is_missing
from tfr_moe.errors import UserError


class DeriveCategory(CountingDoFn):
    """Batches of rows -> batches in which rows without a child category get that of their query.

    Rows of a query below `min_probability` stay without a category; whether that is valid is up to
    the schema. The predicted parent, if the classifier has one, replaces that of the row.

    Args:
        model: folder of the SavedModel, see `tfr_moe.query_categories`.
        query: column with the query.
        child, parent: columns to fill.
        min_probability: minimum probability of a predicted category.

    Raises:
        UserError: if the folder has no model.
    """

    def __init__(self, model: str, query: str, child: str, parent: str, min_probability: float):
        if not Path(model, "saved_model.pb").is_file():
            raise UserError(f"query_model {model}: has no saved_model.pb, expected a classifier")
        self.columns = (child, parent)
        self._folder, self._query, self._min_probability = model, query, min_probability

    def setup(self) -> None:
        """Loads the model on the worker."""
        self._model = SavedModel(self._folder, "a query")

    def process(self, batch: list[RawRow]) -> Iterator[list[RawRow]]:
        """Classifies the queries of one batch."""
        queries = [self._query_of(row) for row in batch]
        self.tally["noted", "rows without a category"] += sum(q is not None for q in queries)
        known = self._classify(sorted({query for query in queries if query is not None}))
        yield [
            self._filled(row, known.get(query or ""))
            for row, query in zip(batch, queries, strict=True)
        ]

    def _classify(self, queries: list[str]) -> dict[str, tuple[str, str]]:
        """Returns query -> (child, parent), without queries below the minimum probability."""
        if not queries:
            return {}
        outputs = self._model(queries)
        columns = [outputs[name] for name in ("child", "parent", "probability")]
        return {
            query: (child.decode(), parent.decode())
            for query, child, parent, probability in zip(queries, *columns, strict=True)
            if probability >= self._min_probability
        }

    def _query_of(self, row: RawRow) -> str | None:
        """Returns the query of a row without a category, None for any other row."""
        if row.error is not None or not isinstance(row.values, Mapping):
            return None
        return join_key(row, [self._query]) if is_missing(row.values.get(self.columns[0])) else None

    def _filled(self, row: RawRow, category: tuple[str, str] | None) -> RawRow:
        if isinstance(row.values, str):
            return row
        child, parent = self.columns
        values = {child: None, parent: None, **row.values}
        if category is not None:
            values |= {child: category[0], parent: category[1] or values[parent]}
        return row._replace(values=values)
