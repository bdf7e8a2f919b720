"""Interactions: what users did with items, without what they were shown."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema

from ..transforms.design import Design
from ..transforms.interactions import Interactions
from ..transforms.past import load_features
from . import Input, formats, register
from .files import ReadFiles, check_columns, match, schema_columns
from .settings import SourceOptions


class SamplingOptions(SourceOptions):
    """How negatives are drawn, for all sources that have positives only."""

    level: int = Field(
        1,
        ge=1,
        description="how many levels of the category a negative shares with the positive, from the "
        "top; context features of deeper levels would tell the positive and are refused",
    )
    negatives: int = Field(20, ge=1, le=500, description="most negatives of a list")
    min_negatives: int = Field(1, ge=1, description="lists with fewer are left out, and counted")
    exponent: float = Field(
        0.75,
        ge=0,
        le=2,
        description="a negative's probability ~ (earlier events)^exponent; 0: alike",
    )
    repeats: bool = Field(
        False,
        description="whether an item that the user had before can be the positive. If so, such items "
        "can be negatives as well (or 'had it before' would tell the positive), but none of "
        "the same moment; if not, no item that the user has at any time is a negative",
    )
    refresh_hours: float = Field(
        24.0, gt=0, description="counts for the draw are brought up to date so often"
    )
    candidates_share: float = Field(
        0.7,
        gt=0,
        le=1,
        description="an item whose first event is not within this share of all events, by time, is in "
        "no list; at most the share that is trained on, or it is known by being new",
    )
    max_user_events: int = Field(
        10_000,
        ge=1,
        description="the earliest events kept of a user, against robots; others are counted",
    )
    seed: int = Field(0, ge=0, description="of the draw; by default the build's --seed")

    @model_validator(mode="after")
    def _check(self) -> SamplingOptions:
        if self.min_negatives > self.negatives:
            raise ValueError(f"min_negatives is {self.min_negatives}, negatives {self.negatives}")
        return self


class InteractionsOptions(SamplingOptions):
    """Where the columns are."""

    items: str = Field(description="file or pattern of the item table")
    user: str = Field("user_id", description="column of the events with the user")
    item: str = Field("item_id", description="column of both with the item")
    time: str = Field("time", description="column of the events with the time")
    category: tuple[str, ...] = Field(
        ("top_category", "sub_category"),
        description="columns of the item table with the category, top first",
    )
    past: str = Field("", description="YAML file with features of the past, see docs/sources.md")


@register("interactions", InteractionsOptions)
def interactions(pattern: str, schema: FeatureSchema, options: InteractionsOptions) -> Input:
    """Events (user, item, time, ...) and an item table: lists of one positive and sampled negatives.

    --input names the events, `items` the table: CSV, JSON lines or Parquet. The rows of a list have the
    event's columns, the item's columns, the features of the past, and the schema's list id and label,
    which are made: the label is 1 at the item of the event and 0 at items that were drawn.

    Raises:
        UserError: if a file can't be used, a column is missing, or a feature would tell the positive.
    """
    events, items = match(pattern), match(options.items, "--set items")
    event_columns = set.intersection(*(formats.columns(path) for path in events))
    item_columns = set.intersection(*(formats.columns(path) for path in items))
    for path in events:
        check_columns(path, formats.columns(path), [options.user, options.item, options.time])
    for path in items:
        check_columns(path, formats.columns(path), [options.item, *options.category])
    design = design_of(
        schema,
        options,
        event_columns,
        item_columns,
        columns=(options.user, options.item, options.time),
        levels=options.category,
        past=tuple(load_features(options.past)) if options.past else (),
    )
    files = [*events, *items]
    return Input(
        Interactions(
            ReadFiles(events, formats.read), ReadFiles(items, formats.read, len(events)), design
        ),
        files,
        sum(events.values()) + sum(items.values()),
        design.notes(),
    )


def design_of(
    schema: FeatureSchema,
    options: SamplingOptions,
    event_columns: set[str],
    item_columns: set[str],
    columns: tuple[str, str, str],
    levels: tuple[str, ...],
    past: tuple[Any, ...],
) -> Design:
    """The design for a schema; only columns that somebody reads are carried along.

    Raises:
        UserError: if the schema asks for what can't be had, or for what would tell the positive.
    """
    user, item, time = columns
    if options.level > len(levels):
        raise UserError(
            f"--set level: level is {options.level}, the category has {len(levels)} columns"
        )
    if schema.position:
        raise UserError(f"schema: position {schema.position!r}: sampled lists were never shown")
    if len(schema.labels) > 1:
        raise UserError("schema: labels: interactions make one label, the positive")
    wanted = {*schema_columns(schema), *(column for f in past for column in f.needs())}
    made = {schema.list_id, schema.label, *(feature.name for feature in past)}
    from_items = tuple(sorted((wanted & item_columns) - made - {item} | set(levels)))
    from_events = tuple(sorted((wanted & event_columns) - made - set(columns) - set(from_items)))
    there = {*made, *columns, *from_items, *from_events}
    for column in sorted(wanted - there):
        listed = ", ".join(sorted(there | event_columns | item_columns))
        raise UserError(
            f"schema: column {column!r} is in no file and is not made; there are: {listed}"
        )
    shared = {*levels[: options.level], user, time, *from_events}
    for feature in schema.select("context"):
        by = [column for f in past if f.name == feature.name for column in f.by]
        if feature.name in {item, *from_items} - shared or set(by) - shared:
            raise UserError(
                f"schema: feature {feature.name!r} is the item's: as context it would be the "
                f"positive's and tell it; make its scope example, or share deeper levels "
                f"(level is {options.level})"
            )
    sampling = {
        name: getattr(options, name)
        for name in SamplingOptions.model_fields
        if name in Design._fields
    }
    return Design(
        user=user,
        item=item,
        time=time,
        levels=levels,
        past=past,
        event_columns=from_events,
        item_columns=from_items,
        list_id=schema.list_id,
        label=schema.label,
        **sampling,
    )
