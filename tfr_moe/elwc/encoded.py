"""Reads encoded rows back: labels, differences of two contexts, the category of a list's items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

from tfr_moe.elwc.encoder import Encoded, counted_ids, scope_floats
from tfr_moe.elwc.values import float_features, id_features
from tfr_moe.elwc.wire import ids_entry
from tfr_moe.schema import PACKED, FeatureSchema

_ZEROS = (bytes(4), b"\0\0\0\x80")  # 0.0 and -0.0
_CONTINUED = 0x80


class Labels:
    """Counts the items with a primary label above 0.

    Example:
        >>> from tfr_moe.elwc.encoder import RowEncoder
        >>> price = {"name": "price", "scope": "example", "kind": "numeric"}
        >>> schema = FeatureSchema(list_id="q", labels=["click"], features=[price])
        >>> row = RowEncoder(schema)({"q": 1, "click": 1, "price": 2})
        >>> Labels(schema).positives([row.example, row.example])
        2
    """

    def __init__(self, schema: FeatureSchema):
        column = len(schema.packed_columns("example"))
        self._label = scope_floats(schema, "example").bytes_of(column)

    def positives(self, items: Iterable[Encoded]) -> int:
        """Returns the number of items with a label above 0."""
        return sum(self.relevant(items))

    def relevant(self, items: Iterable[Encoded]) -> list[bool]:
        """Returns for each item whether its label is above 0."""
        label = self._label
        return [body[label] not in _ZEROS for body, _ in items]


def entries(body: bytes) -> list[bytes]:
    """Splits the map entries of an item or context.

    Example:
        >>> from tfr_moe.elwc.wire import ids_entry
        >>> [len(entry) for entry in entries(ids_entry("a")(["x"]) + ids_entry("b")(["yz"]))]
        [12, 13]
    """
    found, start = [], 0
    while start < len(body):
        position, size, shift = start + 1, 0, 0
        while True:
            byte = body[position]
            position, size, shift = position + 1, size | (byte & 0x7F) << shift, shift + 7
            if byte < _CONTINUED:
                break
        found.append(body[start : position + size])
        start = position + size
    return found


def differing(schema: FeatureSchema, one: bytes, other: bytes) -> list[str]:
    """Returns the context features in which two encoded contexts differ.

    Example:
        >>> from tfr_moe.elwc.encoder import ScopeEncoder
        >>> names = ("age", "income")
        >>> features = [{"name": name, "scope": "context", "kind": "numeric"} for name in names]
        >>> schema = FeatureSchema(list_id="q", labels=["click"], features=features)
        >>> encode = ScopeEncoder(schema, "context")
        >>> differing(schema, encode({"age": 1})[0], encode({"age": 1, "income": 2})[0])
        ['income']
    """
    names = [name for name, _ in float_features(schema, "context")]
    names += [feature.name for feature in id_features(schema, "context")]
    pairs = zip(names, entries(one), entries(other), strict=True)
    found = [name for name, left, right in pairs if left != right]
    if PACKED["context"] in found:
        found.remove(PACKED["context"])
        block = scope_floats(schema, "context")
        numerics = [f.name for f in schema.select("context", "numeric") for _ in f.columns]
        for name, column in zip(numerics, range(block.width), strict=True):
            part = block.bytes_of(column)
            if one[part] != other[part]:
                found.append(name)
    return list(dict.fromkeys(found))


NO_MAJORITY = "lists without a category of the majority"

Text = TypeVar("Text", str, bytes)


def most_frequent(pairs: Iterable[tuple[Text, Text]]) -> tuple[tuple[Text, Text] | None, bool]:
    """Returns the most frequent pair of parent and child, and whether it has the majority.

    Items without a child do not count. Of equally frequent pairs the first one wins.

    Example:
        >>> most_frequent([("Shoes", "Boots"), ("Hats", ""), ("Shoes", "Clogs"), ("Hats", "Caps")])
        (('Shoes', 'Boots'), False)
    """
    counts = Counter([pair for pair in pairs if pair[1]])
    if not counts:
        return None, False
    found = max(counts, key=counts.__getitem__)
    return found, 2 * counts[found] > counts.total()


class ListCategory:
    """Adds the most frequent category of its items to the encoded context of a list without one.

    Args:
        schema: with `from: majority` in its hierarchy.
    """

    def __init__(self, schema: FeatureSchema):
        assert schema.hierarchy is not None
        self._names = schema.hierarchy.parent, schema.hierarchy.child
        features = [feature.name for feature in id_features(schema, "context")]
        first = len(float_features(schema, "context"))
        self._at = [first + features.index(name) for name in self._names]
        self._entries = [ids_entry(name) for name in self._names]
        self._counted = counted_ids(schema, "context")
        of_items = counted_ids(schema, "example")
        self._of_items = [of_items.index(name) for name in schema.item_categories]

    def __call__(self, context: Encoded, items: Sequence[Encoded]) -> tuple[Encoded, bool]:
        """Returns the context, and whether its category has the majority."""
        parent, child = self._of_items
        pair, majority = most_frequent((ids[parent], ids[child]) for _, ids in items)
        body, ids = context
        parts, counted = entries(body), list(ids)
        if parts[self._at[1]] != self._entries[1]([""]):
            return context, True
        for name, at, entry, value in zip(
            self._names, self._at, self._entries, pair or ("", ""), strict=True
        ):
            parts[at] = entry([value])
            if name in self._counted:
                counted[self._counted.index(name)] = value
        return (b"".join(parts), tuple(counted)), majority
