"""Source `search-logs`: one row per impression, columns named by the schema."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import apache_beam as beam
from pydantic import Field, field_validator, model_validator

from tfr_moe.beam.rows import COUNTS, RawRow, SourceRows
from tfr_moe.beam.sources.files import Reader, ReadFiles, columns, file_format, match, read
from tfr_moe.beam.sources.registry import (
    Input,
    SourceOptions,
    check_columns,
    register,
    schema_columns,
)
from tfr_moe.beam.transforms.deduplicate import Deduplicate, Deduplication, add_grades
from tfr_moe.beam.transforms.joins import JoinTable
from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema

_POSITION = "position"
_SAMPLE = 1000


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns nested objects as columns with names joined by an underscore; arrays are kept.

    Example:
        >>> flatten({"id": 1, "user": {"age": 30, "home": {"zip": "x"}}})
        {'id': 1, 'user_age': 30, 'user_home_zip': 'x'}
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found.update(flatten(value, f"{prefix}{name}_"))
        else:
            found[f"{prefix}{name}"] = value
    return found


def read_nested(path: str, index: int, items: str) -> Iterator[RawRow]:
    """Yields the rows of a file of JSON lines with one list each, see `rows_of_list`.

    A line is such as `{"query": "boots", "items": [{"id": 1}, {"id": 2}]}`.
    """
    for row in read(path, index):
        yield from rows_of_list(row, items)


def rows_of_list(row: RawRow, items: str) -> Iterator[RawRow]:
    """Yields one row per item of a nested JSON line: the columns of the item and those of the list.

    Args:
        row: a line whose values are an object.
        items: name of the array of items; with dots inside nested objects: `response.items`. The
            index of an item, from 1, is its `position` unless it has one.
    """
    if row.error is not None or not isinstance(row.values, Mapping):
        yield row
        return
    *parents, last = items.split(".")
    shared = _without(row.values, parents, last)
    found: Any = row.values
    for name in (*parents, last):
        found = found.get(name) if isinstance(found, Mapping) else None
    if not isinstance(found, list) or not found:
        shown = "nothing" if found is None else repr(found)
        yield row._replace(error=f"{items!r}: expected an array of items, got {shown}")
        return
    for order, item in enumerate(found):
        if isinstance(item, Mapping):
            values = {**shared, _POSITION: order + 1, **flatten(item)}
            yield row._replace(values=values, order=order)
        else:
            yield row._replace(error=f"{items!r}: expected objects, got {item!r}", order=order)


def _without(values: Mapping[str, Any], parents: list[str], last: str) -> dict[str, Any]:
    if not parents:
        return flatten({name: value for name, value in values.items() if name != last})
    inner = values.get(parents[0])
    rest = flatten({name: value for name, value in values.items() if name != parents[0]})
    if isinstance(inner, Mapping):
        nested = _without(inner, parents[1:], last)
        rest |= {f"{parents[0]}_{name}": value for name, value in nested.items()}
    return rest


def nested_columns(path: str, items: str) -> set[str]:
    """Returns the columns of the first 1,000 rows of a file of nested JSON lines.

    Raises:
        UserError: if the file has no JSON lines, or no row.
    """
    if file_format(path) != "jsonl":
        raise UserError(f"{path}: items needs JSON lines, .jsonl, .ndjson or .json")
    found: set[str] = set()
    reason = "the file is empty"
    for row in itertools.islice(read_nested(path, 0, items), _SAMPLE):
        if row.error is None and isinstance(row.values, Mapping):
            found.update(row.values)
        else:
            reason = f"line {row.line}: {row.error}"
    if not found:
        raise UserError(f"{path}: {reason}")
    return found


class SearchLogOptions(SourceOptions):
    """Options of `search-logs`; a plain log needs none."""

    items: str = Field(
        "",
        description="name of the array of items in nested JSON lines with one list per line, such "
        "as items or response.items; nested objects become columns like user_age",
    )
    grades: tuple[str, ...] = Field(
        (),
        description="derives the first label of the schema from other columns: "
        "click:1,cart:2,purchase:3 takes the highest grade of the columns above 0",
    )
    merge: str = Field(
        "",
        description="item column: several rows of an item in a list are merged into the first one, "
        "with the highest labels (late or repeated events); merged rows are counted",
    )
    attribution_hours: float | None = Field(
        None,
        gt=0,
        description="with merge: rows later than that after the first row of the list are dropped "
        "and counted",
    )
    join: str = Field(
        "",
        description="file or pattern of a table whose columns are joined: scores and ranks of an "
        "earlier ranker, a vector of the user",
    )
    join_by: tuple[str, ...] = Field(
        (),
        description="with join: columns that form the key of the table; column:other where the "
        "table uses another name",
    )

    @field_validator("grades")
    @classmethod
    def _check_grades(cls, grades: tuple[str, ...]) -> tuple[str, ...]:
        for text in grades:
            column, colon, number = text.partition(":")
            if not (column and colon and number.replace(".", "", 1).isdigit()):
                raise ValueError(f"expected column:grade with a grade >= 0, got {text!r}")
        return grades

    @model_validator(mode="after")
    def _check(self) -> SearchLogOptions:
        if self.attribution_hours is not None and not self.merge:
            raise ValueError("attribution_hours needs merge")
        if bool(self.join) != bool(self.join_by):
            raise ValueError("join and join_by need each other")
        return self

    def grade_columns(self) -> list[tuple[str, float]]:
        """Returns (column, grade) of each of the grades."""
        pairs = (text.partition(":") for text in self.grades)
        return [(column, float(number)) for column, _, number in pairs]

    def join_columns(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Returns the columns to join by, as the log and as the table name them."""
        pairs = [text.partition(":") for text in self.join_by]
        return tuple(left for left, _, _ in pairs), tuple(right or left for left, _, right in pairs)


@register("search-logs", SearchLogOptions)
def search_logs(pattern: str, schema: FeatureSchema, options: SearchLogOptions) -> Input:
    """Impressions: CSV with a header, TSV, JSON lines (flat or nested) or Parquet.

    The input is a pattern, or several separated by commas.

    Raises:
        UserError: if no file matches, or one is of an unknown type, empty, unreadable, or lacks a
            column.
    """
    sizes = match(pattern)
    if options.attribution_hours is not None and schema.time is None:
        raise UserError("attribution_hours: the schema names no time column")
    left_on, right_on = options.join_columns()
    table = match(options.join, "join") if options.join else {}
    joined = _joined_columns(table, right_on)
    made = joined | ({schema.label} if options.grades else set())
    needed = [column for column in schema_columns(schema) if column not in made]
    needed += [column for column, _ in options.grade_columns()]
    needed += left_on
    needed += [options.merge] if options.merge else []
    nested = options.items
    for path in sizes:
        present = nested_columns(path, nested) if nested else columns(path)
        check_columns(path, present, list(dict.fromkeys(needed)))
    reader: Reader = partial(read_nested, items=nested) if nested else read
    rows: beam.PTransform = ReadFiles(sizes, reader)
    join = None
    if options.join:
        # Columns that the schema does not name stay out of the rows.
        wanted = sorted(joined.intersection(schema_columns(schema)))
        rows_of_table = ReadFiles(table, read, first=len(sizes))
        join = JoinTable(rows_of_table, left_on, right_on, wanted)
    if options.grades or options.merge or join:
        rows = _Transformed(rows, schema, options, join)
    return Input(rows, [*sizes, *table], sum(sizes.values()) + sum(table.values()))


def _joined_columns(table: dict[str, int], key: tuple[str, ...]) -> set[str]:
    """Returns the columns that a table adds.

    Raises:
        UserError: if one of its files lacks a column of the key.
    """
    tables = {path: columns(path) for path in table}
    for path, present in tables.items():
        check_columns(path, present, list(key))
    return set.intersection(*tables.values()) - set(key) if tables else set()


class _Transformed(beam.PTransform):
    """Pipeline -> `SourceRows`: graded, merged, joined."""

    def __init__(
        self,
        read: beam.PTransform,
        schema: FeatureSchema,
        options: SearchLogOptions,
        join: JoinTable | None,
    ):
        super().__init__()
        self._read, self._schema, self._options = read, schema, options
        self._join = join

    def expand(self, pipeline: beam.Pipeline) -> SourceRows:
        """Applies the steps."""
        schema, options = self._schema, self._options
        batches = pipeline | "ReadLogs" >> self._read
        empty = pipeline | "Empty" >> beam.Create([])
        counts, rejects = [empty], empty
        if options.grades:
            batches = batches | "Grade" >> beam.Map(
                add_grades, label=schema.label, grades=options.grade_columns()
            ).with_output_types(list[RawRow])
        if options.merge:
            merged = batches | "Merge" >> Deduplicate(
                Deduplication(
                    schema.list_id,
                    options.merge,
                    schema.labels,
                    schema.time,
                    options.attribution_hours,
                )
            )
            batches = merged.batches
            counts.append(merged[COUNTS])
        if self._join is not None:
            batches, table = batches | "Join" >> self._join
            counts.append(table.counts)
            rejects = table.rejects
        return SourceRows(batches, rejects, counts | "LogCounts" >> beam.Flatten())
