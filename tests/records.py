"""Raw rows -> typed values -> records."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tfr_moe.elwc.encoder import ScopeEncoder
from tfr_moe.elwc.values import Values, at_least, converter, minima, present, to_id, to_time
from tfr_moe.elwc.wire import ids_entry, list_record
from tfr_moe.schema import FeatureSchema, Scope


class TypedRow(NamedTuple):
    """`context` and `example` hold the features of their scope, `example` the labels, position and
    weight as well."""

    list_id: str
    time: float | None
    context: Values
    example: Values


def typed_values(schema: FeatureSchema, scope: Scope, raw: Mapping[str, Any]) -> Values:
    """Returns the features of one scope of a raw row."""
    return {
        feature.name: converter(feature)(raw.get(feature.name)) for feature in schema.select(scope)
    }


def typed_row(schema: FeatureSchema, raw: Mapping[str, Any]) -> TypedRow:
    """Returns a raw row of a log, converted column by column; raises `RowError` at the first
    invalid one."""
    list_id = to_id(schema.list_id, present(schema.list_id, raw.get(schema.list_id)))
    time = schema.time and to_time(schema.time, raw.get(schema.time))
    context, example = (typed_values(schema, scope, raw) for scope in ("context", "example"))
    example |= {name: at_least(low, name, raw.get(name)) for name, low in minima(schema).items()}
    return TypedRow(list_id, time, context, example)


def encode_list(
    schema: FeatureSchema, list_id: str, context: Values, items: Sequence[Values]
) -> bytes:
    """Encodes a list, with the labels, position and weight that its items have."""
    extras = {name: 0.0 for name in minima(schema) if items and name in items[0]}
    encode = ScopeEncoder(schema, "example", extras).typed
    bodies = [encode(item)[0] for item in items]
    shared = ScopeEncoder(schema, "context").typed(context)[0]
    return list_record(bodies, shared + ids_entry(schema.list_id, [list_id]))
