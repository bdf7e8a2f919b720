"""Reads encoded rows back: the primary label, and the features in which two contexts differ."""

from __future__ import annotations

from collections.abc import Iterable

from tfr_moe.elwc.encoder import Encoded, scope_floats
from tfr_moe.elwc.values import float_features, id_features
from tfr_moe.schema import PACKED, FeatureSchema

_ZEROS = (bytes(4), b"\0\0\0\x80")  # 0.0 and -0.0
_CONTINUED = 0x80


class Labels:
    """Reads whether the primary label of an item is above 0.

    Example:
        >>> from tfr_moe.elwc.encoder import RowEncoder
        >>> price = {"name": "price", "scope": "example", "kind": "numeric"}
        >>> schema = FeatureSchema(list_id="q", labels=["click"], features=[price])
        >>> (row,) = RowEncoder(schema)([{"q": 1, "click": 1, "price": 2}])
        >>> Labels(schema).relevant([row.example])
        [True]
    """

    def __init__(self, schema: FeatureSchema):
        column = len(schema.packed_columns("example"))
        self._label = scope_floats(schema, "example").bytes_of(column)

    def relevant(self, items: Iterable[Encoded]) -> list[bool]:
        """Returns for each item whether its label is above 0."""
        label = self._label
        return [body[label] not in _ZEROS for body, _ in items]


def entries(body: bytes) -> list[bytes]:
    """Splits the map entries of an item or context.

    Example:
        >>> from tfr_moe.elwc.wire import ids_entry
        >>> [len(entry) for entry in entries(ids_entry("a", ["x"]) + ids_entry("b", ["yz"]))]
        [12, 13]
    """
    parts, start = [], 0
    while start < len(body):
        position, size, shift = start + 1, 0, 0
        while True:
            byte = body[position]
            position, size, shift = position + 1, size | (byte & 0x7F) << shift, shift + 7
            if byte < _CONTINUED:
                break
        parts.append(body[start : position + size])
        start = position + size
    return parts


def differing(schema: FeatureSchema, one: bytes, other: bytes) -> list[str]:
    """Returns the context features in which two encoded contexts differ.

    Example:
        >>> from tfr_moe.elwc.encoder import ScopeEncoder
        >>> names = ("age", "income")
        >>> features = [{"name": name, "scope": "context", "kind": "numeric"} for name in names]
        >>> schema = FeatureSchema(list_id="q", labels=["click"], features=features)
        >>> encode = ScopeEncoder(schema, "context")
        >>> (one, _), (other, _) = encode([{"age": 1}, {"age": 1, "income": 2}])
        >>> differing(schema, one, other)
        ['income']
    """
    names = [name for name, _ in float_features(schema, "context")]
    names += [feature.name for feature in id_features(schema, "context")]
    pairs = zip(names, entries(one), entries(other), strict=True)
    different = [name for name, left, right in pairs if left != right]
    if PACKED["context"] in different:
        different.remove(PACKED["context"])
        block = scope_floats(schema, "context")
        numerics = [f.name for f in schema.select("context", "numeric") for _ in f.columns]
        for name, column in zip(numerics, range(block.width), strict=True):
            part = block.bytes_of(column)
            if one[part] != other[part]:
                different.append(name)
    return list(dict.fromkeys(different))
