"""Source `interactions`: what users did with items, without impressions."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from experiments.datasets.interactions.events import SamplingDesign, SamplingOptions
from experiments.datasets.interactions.history_features import HistoryFeature, load_features
from experiments.datasets.interactions.negative_sampling import Interactions
from tfr_moe.beam.sources import (
    Input,
    ReadRows,
    check_columns,
    columns,
    match,
    register,
    schema_columns,
)
from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema


class InteractionsOptions(SamplingOptions):
    """Options of `interactions`."""

    items: str = Field(description="file or pattern of the item table")
    user: str = Field("user_id", description="user column of the events")
    item: str = Field("item_id", description="item column of events and items")
    time: str = Field("time", description="time column of the events")
    category: tuple[str, ...] = Field(
        ("top_category", "sub_category"), description="category columns of the items, top first"
    )
    history_features: str = Field(
        "", description="YAML file with history features, see experiments/datasets/README.md"
    )


@register("interactions", InteractionsOptions)
def interactions(pattern: str, schema: FeatureSchema, options: InteractionsOptions) -> Input:
    """Events (user, item, time, ...) and an item table: lists of a positive and sampled negatives.

    The input holds the events, `items` the table: CSV, JSON lines or Parquet. Rows have the columns
    of event and item, the history features, and the list ID and label of the schema, which are
    generated: the label is 1 for the item of the event and 0 for sampled items.

    Raises:
        UserError: for an invalid file, a missing column, or a feature that would reveal the
            positive.
    """
    events, items = match(pattern), match(options.items, "items")
    event_columns = _common_columns(events, [options.user, options.item, options.time])
    item_columns = _common_columns(items, [options.item, *options.category])
    design = sampling_design(
        schema,
        options,
        event_columns,
        item_columns,
        columns=(options.user, options.item, options.time),
        levels=options.category,
        history=tuple(load_features(options.history_features)) if options.history_features else (),
    )
    rows = Interactions(ReadRows(events), ReadRows(items, first=len(events)), design)
    total_bytes = sum(events.values()) + sum(items.values())
    return Input(rows, [*events, *items], total_bytes, design.notes())


def _common_columns(paths: Iterable[str], needed: list[str]) -> set[str]:
    """Returns the columns of all files; raises `UserError` where one lacks a needed column."""
    present = {path: columns(path) for path in paths}
    for path, names in present.items():
        check_columns(path, names, needed)
    return set.intersection(*present.values())


def sampling_design(
    schema: FeatureSchema,
    options: SamplingOptions,
    event_columns: set[str],
    item_columns: set[str],
    columns: tuple[str, str, str],
    levels: tuple[str, ...],
    history: tuple[HistoryFeature, ...],
) -> SamplingDesign:
    """Returns the design for a schema; it drops unused columns early.

    Args:
        schema: of the rows.
        options: of the draw.
        event_columns: columns of the events.
        item_columns: columns of the item table.
        columns: names of user, item and time.
        levels: category columns of the items, top first.
        history: history features.

    Raises:
        UserError: if the schema names a column that is not available, or one that would reveal the
            positive.
    """
    user, item, time = columns
    if options.level > len(levels):
        raise UserError(
            f"level: must be at most {len(levels)}, the number of category columns, "
            f"got {options.level}"
        )
    if schema.position:
        raise UserError(f"schema: position {schema.position!r}: sampled lists have no positions")
    if len(schema.labels) > 1:
        raise UserError("schema: labels: interactions have one label, the positive")
    wanted = {*schema_columns(schema), *(column for f in history for column in f.needs())}
    made = {schema.list_id, schema.label, *(feature.name for feature in history)}
    from_items = tuple(sorted((wanted & item_columns) - made - {item} | set(levels)))
    from_events = tuple(sorted((wanted & event_columns) - made - set(columns) - set(from_items)))
    available = {*made, *columns, *from_items, *from_events}
    for column in sorted(wanted - available):
        listed = ", ".join(sorted(available | event_columns | item_columns))
        raise UserError(
            f"schema: column {column!r} is in no file and is not generated; available: {listed}"
        )
    shared = {*levels[: options.level], user, time, *from_events}
    for feature in schema.select("context"):
        by = [column for f in history if f.name == feature.name for column in f.by]
        if feature.name in {item, *from_items} - shared or set(by) - shared:
            raise UserError(
                f"schema: feature {feature.name!r} belongs to the item: as a context feature it "
                f"would reveal the positive; set its scope to example, or share deeper levels "
                f"(level is {options.level})"
            )
    return SamplingDesign(
        options=options,
        user=user,
        item=item,
        time=time,
        levels=levels,
        history=history,
        event_columns=from_events,
        item_columns=from_items,
        list_id=schema.list_id,
        label=schema.label,
    )
