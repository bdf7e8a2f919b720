"""Source `search-logs`: one row per impression, columns named by the schema."""

from __future__ import annotations

from functools import partial

import apache_beam as beam
from pydantic import Field, field_validator, model_validator

from tfr_moe.beam.rows import COUNTS, RawRow, SourceRows
from tfr_moe.beam.sources.files import Reader, ReadFiles, columns, match, read
from tfr_moe.beam.sources.nested import nested_columns, read_nested
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
