"""Source `search-logs`: one row per impression, columns named by the schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import apache_beam as beam
from pydantic import BeforeValidator, Field, model_validator

from tfr_moe.beam.rows import RawRow, SourceRows
from tfr_moe.beam.sources.files import (
    ReadFiles,
    ReadRows,
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
from tfr_moe.beam.transforms.joins import JoinColumns, ReadTable
from tfr_moe.elwc.values import RowError, is_missing, to_number
from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema


def _grade(text: str) -> tuple[str, float]:
    column, colon, number = text.partition(":")
    if not (column and colon and number.replace(".", "", 1).isdigit()):
        raise ValueError(f"expected column:grade with a grade >= 0, got {text!r}")
    return column, float(number)


class SearchLogSourceOptions(SourceOptions):
    """Options of `search-logs`; a plain log needs none."""

    items: str = Field(
        "",
        description="name of the array of items in nested JSON lines with one list per line, such "
        "as items or response.items; nested objects become columns like user_age",
    )
    grades: tuple[Annotated[tuple[str, float], BeforeValidator(_grade)], ...] = Field(
        (),
        description="derives the first label of the schema from other columns of the log or of "
        "the joined table: click:1,cart:2,purchase:3 takes the highest grade of those above 0",
    )
    join: str = Field(
        "",
        description="file or pattern of a table whose columns are joined: scores and ranks of an "
        "earlier ranker, a vector of the user, purchases in another file",
    )
    join_by: tuple[str, ...] = Field(
        (),
        description="with join: columns that form the key of the table; column:other where the "
        "table uses another name",
    )
    negatives: str = Field(
        "",
        description="how negatives were sampled, if the log has sampled ones: evaluate and reports "
        "say it beside their numbers, such as 'sampled uniformly from the category'",
    )

    @model_validator(mode="after")
    def _check(self) -> SearchLogSourceOptions:
        if bool(self.join) != bool(self.join_by):
            raise ValueError("join and join_by must be used together")
        return self

    def join_columns(self) -> tuple[list[str], list[str]]:
        """Returns the columns to join by, as the log and as the table name them."""
        pairs = [text.partition(":") for text in self.join_by]
        return [left for left, _, _ in pairs], [right or left for left, _, right in pairs]


@register("search-logs", SearchLogSourceOptions)
def search_logs(pattern: str, schema: FeatureSchema, options: SearchLogSourceOptions) -> Input:
    """Impressions: CSV with a header, TSV, JSON lines (flat or nested) or Parquet.

    The input is a pattern, or several separated by commas.

    Raises:
        UserError: if no file matches, or one is of an unknown type, empty, unreadable, or lacks a
            column.
    """
    sizes = match(pattern)
    left_on, right_on = options.join_columns()
    table = match(options.join, "join") if options.join else {}
    joined = _joined_columns(table, right_on)
    made = [schema.label] if options.grades else []
    used = [column for column in schema_columns(schema) if column not in made]
    used += [column for column, _ in options.grades]
    needed = [*(column for column in used if column not in joined), *left_on]
    # Other columns of the table stay out of the rows.
    wanted = sorted(joined.intersection(used))
    nested = partial(_read_nested, items=options.items)
    for path in sizes:
        if options.items and file_format(path) != "jsonl":
            raise UserError(f"{path}: items needs JSON lines, .jsonl, .ndjson or .json")
        present = columns_of_rows(path, nested(path, 0)) if options.items else columns(path)
        check_columns(path, present, list(dict.fromkeys(needed)))
        if both := [column for column in wanted if column in present]:
            raise UserError(f"{path}: column {both[0]!r} is also in the table of join; rename one")
    by_row = bool(options.grades or options.join)
    log = ReadFiles(sizes, nested) if options.items else ReadRows(sizes, by_column=not by_row)
    if by_row:
        log = _transformed(log, ReadRows(table, len(sizes)), schema, options, wanted)
    notes = {"negatives": options.negatives} if options.negatives else {}
    return Input(log, [*sizes, *table], sum(sizes.values()) + sum(table.values()), notes)


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
    options: SearchLogSourceOptions,
    joined: list[str],
) -> SourceRows:
    """Pipeline -> `SourceRows` of a log: joined, then graded."""
    batches = pipeline | "ReadLogs" >> log
    counts = rejects = pipeline | "Empty" >> beam.Create([])
    if options.join:
        left_on, right_on = options.join_columns()
        read_table = ReadTable(right_on, joined, thing="joined rows")
        entries, counts, rejects = pipeline | "ReadTable" >> table | "Table" >> read_table
        batches = (batches, entries) | "Join" >> JoinColumns(left_on, joined)
    if options.grades:
        batches = batches | "Grade" >> beam.Map(
            add_grades, label=schema.label, grades=options.grades
        ).with_output_types(list[RawRow])
    return SourceRows(batches, rejects, counts)


def add_grades(
    batch: list[RawRow], label: str, grades: Sequence[tuple[str, float]]
) -> list[RawRow]:
    """Returns the rows with a label: the highest grade of the columns above 0, 0 for none.

    A row with a column that is neither missing nor a number gets an error.

    Example:
        >>> row = RawRow(0, 1, {"click": "1", "purchase": 0})
        >>> add_grades([row], "grade", [("click", 1.0), ("purchase", 3.0)])[0].values["grade"]
        1.0
    """

    def graded(row: RawRow) -> RawRow:
        values = row.values
        present = [(c, grade) for c, grade in grades if not is_missing(values.get(c))]
        reached = [grade for column, grade in present if to_number(column, values[column]) > 0]
        return row._replace(values={**values, label: max(reached, default=0.0)})

    rows = []
    for row in batch:
        try:
            rows.append(graded(row) if row.error is None else row)
        except RowError as error:
            rows.append(row._replace(error=str(error)))
    return rows


def _read_nested(path: str, index: int, items: str) -> Iterator[RawRow]:
    """Yields a row for each item of each line: its columns and those of the list."""
    for row in read(path, index):
        if row.error is None:
            yield from _rows_of_list(row, items)
        else:
            yield row


def _rows_of_list(row: RawRow, path: str) -> Iterator[RawRow]:
    shared = _flat(row.values)
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
