"""Source `search-logs`: one row per impression, columns named by the schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import apache_beam as beam
from pydantic import Field, field_validator, model_validator

from tfr_moe.beam.rows import COUNTS, RawRow, SourceRows
from tfr_moe.beam.sources.files import (
    Reader,
    ReadFiles,
    columns,
    columns_of_rows,
    file_format,
    match,
    read,
)
from tfr_moe.beam.sources.registry import (
    Input,
    SourceOptions,
    check_columns,
    register,
    schema_columns,
)
from tfr_moe.beam.transforms.deduplicate import MergeRows, add_grades, key_by_list
from tfr_moe.beam.transforms.joins import JoinColumns, ReadTable
from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema


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

    def join_columns(self) -> tuple[list[str], list[str]]:
        """Returns the columns to join by, as the log and as the table name them."""
        pairs = [text.partition(":") for text in self.join_by]
        return [left for left, _, _ in pairs], [right or left for left, _, right in pairs]


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
    reader: Reader = partial(_read_nested, items=options.items) if options.items else read
    for path in sizes:
        if options.items and file_format(path) != "jsonl":
            raise UserError(f"{path}: items needs JSON lines, .jsonl, .ndjson or .json")
        present = columns_of_rows(path, reader(path, 0)) if options.items else columns(path)
        check_columns(path, present, list(dict.fromkeys(needed)))
    rows: beam.PTransform = ReadFiles(sizes, reader)
    if options.grades or options.merge or options.join:
        # Columns that the schema does not name stay out of the rows.
        wanted = sorted(joined.intersection(schema_columns(schema)))
        rows = _transformed(rows, ReadFiles(table, read, len(sizes)), schema, options, wanted)
    return Input(rows, [*sizes, *table], sum(sizes.values()) + sum(table.values()))


def _joined_columns(table: dict[str, int], key: list[str]) -> set[str]:
    """Returns the columns that a table adds, after a check of its key."""
    tables = {path: columns(path) for path in table}
    for path, present in tables.items():
        check_columns(path, present, key)
    return set.intersection(*tables.values()) - set(key) if tables else set()


@beam.ptransform_fn
def _transformed(
    pipeline: beam.Pipeline,
    log: beam.PTransform,
    table: beam.PTransform,
    schema: FeatureSchema,
    options: SearchLogOptions,
    joined: list[str],
) -> SourceRows:
    """Pipeline -> `SourceRows` of a log: graded, merged, joined."""
    batches = pipeline | "ReadLogs" >> log
    rejects = pipeline | "Empty" >> beam.Create([])
    counts = [rejects]
    if options.grades:
        batches = batches | "Grade" >> beam.Map(
            add_grades, label=schema.label, grades=options.grade_columns()
        ).with_output_types(list[RawRow])
    if options.merge:
        merge = beam.ParDo(MergeRows(schema, options.merge, options.attribution_hours))
        merged = (
            batches
            | "KeyByList" >> beam.FlatMap(key_by_list, schema, options.merge)
            | "RowsOfLists" >> beam.GroupByKey()
            | "MergeRows" >> merge.with_outputs(COUNTS, main="batches")
        )
        batches = merged.batches
        counts.append(merged[COUNTS])
    if options.join:
        left_on, right_on = options.join_columns()
        read_table = ReadTable(right_on, joined, thing="joined rows")
        entries, table_counts, rejects = pipeline | "ReadTable" >> table | "Table" >> read_table
        batches = (batches, entries) | "Join" >> JoinColumns(left_on, joined)
        counts.append(table_counts)
    return SourceRows(batches, rejects, counts | "LogCounts" >> beam.Flatten())


def _read_nested(path: str, index: int, items: str) -> Iterator[RawRow]:
    """Yields a row for each item of each line: its columns and those of the list."""
    for row in read(path, index):
        if row.error is None:
            yield from _rows_of_list(row, items)
        else:
            yield row


def _rows_of_list(row: RawRow, path: str) -> Iterator[RawRow]:
    shared = _flat(row.columns())
    items = shared.pop(path.replace(".", "_"), None)
    if not isinstance(items, list) or not items:
        received = "nothing" if items is None else repr(items)
        yield row._replace(error=f"{path!r}: expected an array of items, got {received}")
        return
    for order, item in enumerate(items):
        if isinstance(item, Mapping):
            values = {**shared, "position": order + 1, **_flat(item)}
            yield row._replace(values=values, order=order)
        else:
            yield row._replace(error=f"{path!r}: expected objects, got {item!r}", order=order)


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns nested objects as columns, names joined by an underscore; arrays stay."""
    columns: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            columns |= {f"{name}_{inner}": entry for inner, entry in _flat(value).items()}
        else:
            columns[name] = value
    return columns
