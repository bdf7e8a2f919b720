"""Several rows of one item in a list -> one row: late or repeated events, grades of events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tfr_moe.beam.rows import CountingDoFn, RawRow
from tfr_moe.beam.transforms.joins import key_of, row_time
from tfr_moe.elwc.values import RowError, is_missing, to_id, to_number
from tfr_moe.schema import FeatureSchema

_HOUR = 3600.0


def add_grades(batch: list[RawRow], label: str, grades: list[tuple[str, float]]) -> list[RawRow]:
    """Returns the rows with a label: the highest grade of the columns above 0, 0 for none.

    A row with a column that is neither missing nor a number gets an error.

    Example:
        >>> row = RawRow(0, 1, {"click": "1", "purchase": 0})
        >>> add_grades([row], "grade", [("click", 1.0), ("purchase", 3.0)])[0].values["grade"]
        1.0
    """

    def graded(row: RawRow) -> RawRow:
        values = row.columns()
        present = [(c, g) for c, g in grades if not is_missing(values.get(c))]
        reached = [grade for column, grade in present if to_number(column, values[column]) > 0]
        return row._replace(values={**values, label: max(reached, default=0.0)})

    rows = []
    for row in batch:
        try:
            rows.append(graded(row) if isinstance(row.values, Mapping) else row)
        except RowError as error:
            rows.append(row._replace(error=str(error)))
    return rows


def key_by_list(
    batch: list[RawRow], schema: FeatureSchema, item: str
) -> Iterator[tuple[str, RawRow]]:
    """Yields (list ID, row); a row that the parser will reject has a key to itself."""
    for row in batch:
        yield _list_id(row, schema, item) or f"\0{row.file}\0{row.line}\0{row.order}", row


def _list_id(row: RawRow, schema: FeatureSchema, item: str) -> str | None:
    values = row.values
    if row_time(row, schema.time) is None or not isinstance(values, Mapping):
        return None
    try:
        for label in schema.labels:
            to_number(label, values.get(label))
        key_of(values, [item])
        return key_of(values, [schema.list_id])
    except RowError:
        return None


class MergeRows(CountingDoFn):
    """(list ID, rows) -> the batch of rows of the list, one for each item.

    The first row of an item (by time, then in the order of the files) wins, with the highest value
    of each label among the rows of the item.

    Args:
        schema: names list ID, labels and time.
        item: column that identifies an item.
        attribution_hours: rows later than that after the first row of the list are dropped.
    """

    def __init__(self, schema: FeatureSchema, item: str, attribution_hours: float | None):
        self._schema, self._item = schema, item
        self._seconds = float("inf") if attribution_hours is None else attribution_hours * _HOUR

    def process(self, entry: tuple[str, Iterable[RawRow]]) -> Iterator[list[RawRow]]:
        """Merges one list."""
        list_id, rows = entry
        batch = list(rows) if list_id.startswith("\0") else self._merged(rows)
        self._count("kept", len(batch))
        yield batch

    def _merged(self, rows: Iterable[RawRow]) -> list[RawRow]:
        timed = [(row_time(row, self._schema.time) or 0.0, row.key, row) for row in rows]
        timed.sort(key=lambda entry: entry[:2])
        items: dict[str, RawRow] = {}
        for time, _, row in timed:
            item = to_id(self._item, row.columns()[self._item])
            if time > timed[0][0] + self._seconds:
                self._count("left out: late")
            elif item in items:
                items[item] = self._with_labels(items[item], row)
                self._count("merged with another row of the item")
            else:
                items[item] = row
        return list(items.values())

    def _with_labels(self, row: RawRow, other: RawRow) -> RawRow:
        values, others = row.columns(), other.columns()
        labels = {
            label: max(values[label], others[label], key=lambda value: to_number("label", value))
            for label in self._schema.labels
        }
        return row._replace(values={**values, **labels})

    def _count(self, outcome: str, number: int = 1) -> None:
        self.tally["source", "log rows", outcome] += number
        self.tally["source", "log rows", "read"] += number
