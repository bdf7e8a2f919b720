"""Search logs: files with one row per shown item, the columns named by the schema."""

from __future__ import annotations

from functools import partial
from typing import Any

import apache_beam as beam
from pydantic import Field, field_validator, model_validator

from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema

from ..transforms.counting import COUNTS
from ..transforms.joining import add_past, pasts_of
from ..transforms.merging import Merging, graded, merged
from ..transforms.past import PastFeature, load_features
from ..transforms.queries import AssignCategories
from ..transforms.side_tables import JoinTable
from . import Input, RawRow, SourceRows, formats, nesting, register
from .files import ReadFiles, check_columns, match, schema_columns
from .settings import SourceOptions


class SearchLogOptions(SourceOptions):
    """What a plain log does not need."""

    items: str = Field(
        "",
        description="of nested JSON lines, one list a line: the array with its items, such as items or "
        "response.items; objects in objects become columns like user_age",
    )
    grades: tuple[str, ...] = Field(
        (),
        description="makes the schema's first label of other columns: click:1,cart:2,purchase:3 takes "
        "the highest grade among those that are above 0",
    )
    merge: str = Field(
        "",
        description="column with the item: several rows of an item in a list become the first of them, "
        "with the highest labels (events that come late or twice); merged ones are counted",
    )
    attribution_hours: float | None = Field(
        None,
        gt=0,
        description="with merge: rows later than so many hours after the list's first row are left "
        "out, and counted",
    )
    join: str = Field(
        "",
        description="file or pattern of a table whose columns are joined in: an earlier ranker's scores "
        "and ranks, a user's vector",
    )
    join_by: tuple[str, ...] = Field(
        (),
        description="with join: the columns that name a row of the table; column:theirs where the table "
        "calls it otherwise",
    )
    query_model: str = Field(
        "",
        description="folder of a classifier that `tfr-moe train-queries` made: rows without a category get "
        "that of their query; the schema's hierarchy says which columns these are",
    )
    query_column: str = Field("query", description="with query_model: the column with the query")
    query_probability: float = Field(
        0.0,
        ge=0,
        le=1,
        description="with query_model: the least probability of a category that is taken",
    )
    past: str = Field("", description="YAML file with features of the past, see docs/sources.md")

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

    def graded(self) -> list[tuple[str, float]]:
        """(column, grade) of each of the grades."""
        return [
            (column, float(number))
            for column, _, number in (text.partition(":") for text in self.grades)
        ]

    def join_columns(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The columns to join by, as the log and as the table call them."""
        pairs = [text.partition(":") for text in self.join_by]
        return tuple(own for own, _, _ in pairs), tuple(other or own for own, _, other in pairs)


@register("search-logs", SearchLogOptions)
def search_logs(pattern: str, schema: FeatureSchema, options: SearchLogOptions) -> Input:
    """Rows of what was shown: CSV with a header, TSV, JSON lines (flat or nested) or Parquet.

    --input is a pattern, or several with commas between them.

    Raises:
        UserError: if no file matches, or one is of an unknown type, is empty, can't be read, or lacks
            a column.
    """
    found = match(pattern)
    table = match(options.join, "--set join") if options.join else {}
    own, theirs = options.join_columns()
    joined = _joined_columns(table, theirs)
    past = load_features(options.past) if options.past else []
    if past and schema.time is None:
        raise UserError(f"past {options.past}: the schema names no time column")
    if options.attribution_hours is not None and schema.time is None:
        raise UserError("--set attribution_hours: the schema names no time column")
    made = {feature.name for feature in past} | ({schema.label} if options.grades else set())
    made |= joined
    queries = _queries(schema, options)
    made |= set(queries.columns) if queries else set()
    needed = [column for column in schema_columns(schema) if column not in made]
    needed += [column for column, _ in options.graded()]
    needed += own
    needed += [options.query_column] if queries else []
    needed += [options.merge] if options.merge else []
    needed += [column for feature in past for column in feature.needs() if column not in made]
    reader: Any = formats.read
    if options.items:
        reader = partial(nesting.read, items=options.items)
    for path in found:
        there = nesting.columns(path, options.items) if options.items else formats.columns(path)
        check_columns(path, there, list(dict.fromkeys(needed)))
    read = ReadFiles(found, reader)
    plain = not (options.grades or options.merge or options.join or past or queries)
    join = None
    if options.join:
        # What the schema and the past do not name stays out of the rows.
        wanted = {*schema_columns(schema), *(c for feature in past for c in feature.needs())}
        tables = ReadFiles(table, formats.read, first=len(found))
        join = JoinTable(tables, own, theirs, sorted(joined & wanted))
    rows = read if plain else _Worked(read, schema, options, join, past, queries)
    return Input(rows, [*found, *table], sum(found.values()) + sum(table.values()))


def _joined_columns(table: dict[str, int], by: tuple[str, ...]) -> set[str]:
    """The columns that a table brings.

    Raises:
        UserError: if a file of it lacks a column of `by`.
    """
    columns = [formats.columns(path) for path in table]
    for path, there in zip(table, columns, strict=True):
        check_columns(path, there, list(by))
    return set.intersection(*columns) - set(by) if columns else set()


def _queries(schema: FeatureSchema, options: SearchLogOptions) -> AssignCategories | None:
    """What finds the categories of queries, where that is wanted."""
    if not options.query_model:
        return None
    if schema.hierarchy is None:
        raise UserError("--set query_model: the schema names no hierarchy, whose columns it fills")
    return AssignCategories(
        options.query_model,
        options.query_column,
        schema.hierarchy.child,
        schema.hierarchy.parent,
        options.query_probability,
    )


class _Worked(beam.PTransform):
    """Pipeline -> `SourceRows`: graded, merged, joined, with their past."""

    def __init__(
        self,
        read: ReadFiles,
        schema: FeatureSchema,
        options: SearchLogOptions,
        join: JoinTable | None,
        past: list[PastFeature],
        queries: AssignCategories | None,
    ):
        super().__init__()
        self._read, self._schema, self._options = read, schema, options
        self._join, self._past, self._queries = join, past, queries

    def expand(self, pipeline: beam.Pipeline) -> SourceRows:
        """Does what was asked for; the past comes last, so that it may be that of any column."""
        schema, options = self._schema, self._options
        batches = pipeline | "ReadLogs" >> self._read
        nothing = pipeline | "Nothing" >> beam.Create([])
        counts, rejects = [nothing], nothing
        if options.grades:
            batches = batches | "Grade" >> beam.Map(
                graded, label=schema.label, grades=options.graded()
            ).with_output_types(list[RawRow])
        if options.merge:
            merging = Merging(
                schema.list_id, options.merge, schema.labels, schema.time, options.attribution_hours
            )
            made = merged(batches, merging)
            batches = made.batches
            counts.append(made[COUNTS])
        if self._join is not None:
            batches, table = batches | "Join" >> self._join
            counts.append(table.counts)
            rejects = table.rejects
        if self._queries is not None:
            made = batches | "Categories" >> self._queries
            batches = made.batches
            counts.append(made.counts)
        if self._past:
            assert schema.time is not None
            batches, past_counts = add_past(batches, batches, pasts_of(self._past), schema.time)
            counts += past_counts
        return SourceRows(batches, rejects, counts | "LogCounts" >> beam.Flatten())
