"""Batches of rows and a table by key -> the same batches with more columns.

Rows stay in their batches. Only a row's key, time and place travel to where the key's knowledge is, and
only the answer travels back, so that no worker has to hold the table, and a key with millions of rows is
answered row by row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import apache_beam as beam

from tfr_moe.encoding import RowError, is_missing, to_id, to_number, to_time

from ..sources import RawRow
from .counting import COUNTS, CountingDoFn
from .meeting import Meet
from .past import Event, Past, is_numeric

BatchId = tuple[int, int, int]
Question = tuple[int, float, tuple[Any, ...]]
"""(index of the row in its batch, its time, its values that the answer depends on)."""


class Answers(Protocol):
    """Makes columns of a row from what is known of its key.

    Attributes:
        key: the column with the key.
        row_columns: what else of the row it reads.
        names: the columns that it makes.
    """

    key: str
    row_columns: list[str]
    names: list[str]

    def lines(self, events: Iterable[Any]) -> Any:
        """Puts what is known of one key in order."""

    def values(self, lines: Any, time: float, row: Sequence[Any]) -> tuple[Any, ...]:
        """The values of `names`."""


def batch_id(batch: Sequence[RawRow]) -> BatchId:
    """What tells batches apart: the place of the first row."""
    return batch[0].file, batch[0].line, batch[0].order


def moment(row: RawRow, time: str | None) -> float | None:
    """The time of a row, None where it has no usable one; 0 where no column is named."""
    if row.error is not None or not isinstance(row.values, Mapping):
        return None
    if time is None:
        return 0.0
    try:
        return to_time(time, row.values.get(time))
    except RowError:
        return None


def key_of(row: RawRow, column: str) -> str | None:
    """What a row joins by: its value of the column as an id, None where there is none."""
    value = row.values.get(column)  # type: ignore[union-attr]
    try:
        return None if is_missing(value) else to_id(column, value)
    except RowError:
        return None


class JoinByKey(beam.PTransform):
    """(batches, known) -> batches whose rows have the columns of `answers` as well.

    `known` is a collection of (key, value) with the values that `answers.lines` takes. A row without a
    key is answered as if nothing were known; one without a usable time is left as it is, for the
    parser to reject.

    Args:
        answers: makes the columns.
        time: the column with the time; None where the answers do not depend on it.
    """

    def __init__(self, answers: Answers, time: str | None = None):
        super().__init__()
        self._answers = answers
        self._time = time

    def expand(self, inputs: tuple[beam.PCollection, beam.PCollection]) -> beam.PCollection:
        """Asks, answers, and puts the answers in their rows."""
        batches, known = inputs
        asked = batches | "Ask" >> beam.FlatMap(_ask, self._answers, self._time)
        answered = (known, asked) | "Answer" >> Meet(partial(_answer, answers=self._answers))
        keyed = batches | "KeyByBatch" >> beam.Map(lambda batch: (batch_id(batch), batch))
        filled = (answered, keyed) | "Fill" >> Meet(partial(_fill, answers=self._answers))
        return filled | "Rows" >> beam.Map(lambda batch: batch).with_output_types(list[RawRow])


def _ask(
    batch: list[RawRow], answers: Answers, time: str | None
) -> Iterator[tuple[str, tuple[BatchId, list[Question]]]]:
    questions: dict[str, list[Question]] = {}
    for index, row in enumerate(batch):
        when = moment(row, time)
        key = None if when is None else key_of(row, answers.key)
        if when is not None and key is not None:
            get = row.values.get  # type: ignore[union-attr]
            question = (index, when, tuple([get(column) for column in answers.row_columns]))
            questions.setdefault(key, []).append(question)
    name = batch_id(batch)
    for key, found in questions.items():
        yield key, (name, found)


def _answer(
    key: str, known: list[Any], asked: Iterable[tuple[BatchId, list[Question]]], answers: Answers
) -> Iterator[tuple[BatchId, list[tuple[int, tuple[Any, ...]]]]]:
    lines = None
    for name, questions in asked:
        if lines is None:
            lines = answers.lines(known)
        yield name, [(index, answers.values(lines, time, row)) for index, time, row in questions]


def _fill(
    name: BatchId, answered: list[Any], batches: Iterable[list[RawRow]], answers: Answers
) -> Iterator[list[RawRow]]:
    found = dict(entry for answer in answered for entry in answer)
    nothing = answers.lines(())
    for batch in batches:
        filled = []
        for index, row in enumerate(batch):
            if isinstance(row.values, Mapping):
                values = found.get(index)
                if values is None:
                    get = row.values.get
                    values = answers.values(nothing, 0.0, [get(c) for c in answers.row_columns])
                columns = dict(zip(answers.names, values, strict=True))
                row = row._replace(values={**row.values, **columns})
            filled.append(row)
        yield filled


class PastEvents(CountingDoFn):
    """Batches of rows -> (key, `Event`) for one `Past`.

    A row without key, time or a number where one is needed is no event; such rows are counted, and
    whether they stay rows is for the schema to say.
    """

    def __init__(self, past: Past, time: str):
        self._past = past
        self._time = time
        self._numbers = [f.of for f in past.features if is_numeric(f) and f.of]

    def process(self, batch: list[RawRow]) -> Iterator[tuple[str, Event]]:
        """Makes the events of a batch."""
        columns = self._past.event_columns
        for row in batch:
            when = moment(row, self._time)
            key = None if when is None else key_of(row, self._past.key)
            if when is None or key is None or not self._sound(row.values):
                self.tally["noted", f"events without time, {self._past.key} or number"] += 1
                continue
            get = row.values.get  # type: ignore[union-attr]
            place = (row.file, row.line, row.order)
            yield key, Event(when, place, tuple([get(column) for column in columns]))

    def _sound(self, values: Any) -> bool:
        try:
            for column in self._numbers:
                if not is_missing(values.get(column)):
                    to_number(column, values[column])
        except RowError:
            return False
        return True


def add_past(
    batches: beam.PCollection, events: beam.PCollection, pasts: Sequence[Past], time: str
) -> tuple[beam.PCollection, list[beam.PCollection]]:
    """Batches with the features of all `pasts`, and the counts that arose.

    Args:
        batches: of the rows to describe.
        events: batches of rows that happened; may be the same collection.
        pasts: later ones may read columns that earlier ones made.
        time: the column with the time, in both.
    """
    counts = []
    for past in pasts:
        made = events | f"Events by {past.key}" >> beam.ParDo(PastEvents(past, time)).with_outputs(
            COUNTS, main="events"
        )
        counts.append(made[COUNTS])
        batches = (batches, made.events) | f"Past of {past.key}" >> JoinByKey(past, time)
    return batches, counts


def pasts_of(features: Iterable[Any]) -> list[Past]:
    """The features brought together by their key."""
    groups: dict[str, list[Any]] = {}
    for feature in features:
        groups.setdefault(feature.by[0], []).append(feature)
    return [Past(group) for group in groups.values()]
