"""The category of a list from its items, for logs in which only items have one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

from tfr_moe.elwc.encoded import entries
from tfr_moe.elwc.encoder import Encoded, counted_ids
from tfr_moe.elwc.values import float_features, id_features
from tfr_moe.elwc.wire import ids_entry
from tfr_moe.schema import FeatureSchema

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
