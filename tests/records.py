"""Typed values of lists as records."""

from collections.abc import Sequence

from tfr_moe.elwc.encoder import ScopeEncoder
from tfr_moe.elwc.values import Values, minima
from tfr_moe.elwc.wire import ids_entry, list_record
from tfr_moe.schema import FeatureSchema


def encode_list(
    schema: FeatureSchema, list_id: str, context: Values, items: Sequence[Values]
) -> bytes:
    """Encodes a list, with the labels, position and weight that its items have."""
    extras = {name: 0.0 for name in minima(schema) if items and name in items[0]}
    encode = ScopeEncoder(schema, "example", extras).typed
    bodies = [encode(item)[0] for item in items]
    shared = ScopeEncoder(schema, "context").typed(context)[0]
    return list_record(bodies, shared + ids_entry(schema.list_id)([list_id]))
