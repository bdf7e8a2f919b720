"""The category of a list from its items, for logs in which only items have one.

By `from: majority` it is the most frequent pair of parent and child among the items. By
`from: clicked_in_training` it is the pair that was clicked most in other training lists of the same
query: a list never counts its own clicks, in training as little as in serving.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from tfr_moe.elwc.encoded import Labels, entries
from tfr_moe.elwc.encoder import Encoded, counted_ids
from tfr_moe.elwc.values import float_features, id_features
from tfr_moe.elwc.wire import ids_entry
from tfr_moe.schema import FeatureSchema, QueryCategories

NO_MAJORITY = "lists in which no category has the majority; they get the most frequent one"
NO_CLICKS = "lists without clicks of their query in training, which have the most frequent category"

Pair: TypeAlias = tuple[str, str]
"""Parent and child."""
Clicks: TypeAlias = Mapping[str, Counter[Pair]]
"""Query -> parent and child -> number of clicks."""


def most_clicked(clicks: Counter[Pair]) -> Pair:
    """Returns the pair with most clicks, of equal ones the first by its text.

    Example:
        >>> most_clicked(Counter({("Shoes", "Clogs"): 2, ("Shoes", "Boots"): 2}))
        ('Shoes', 'Boots')
    """
    return min(clicks, key=lambda pair: (-clicks[pair], pair))


def category_of(
    pairs: Iterable[Pair], clicks: Counter[Pair] | None
) -> tuple[Pair | None, list[str]]:
    """Returns the category of a list from the pairs of its items, and what to note about it.

    It is the pair with most `clicks` of the query in other training lists; without clicks, which
    are None for `from: majority`, the most frequent pair of the items, of equally frequent ones the
    first. Items without a child do not count.

    Example:
        >>> shoes = [("Shoes", "Boots"), ("Hats", ""), ("Shoes", "Boots"), ("Hats", "Caps")]
        >>> category_of(shoes, None)
        (('Shoes', 'Boots'), [])
    """
    if clicks:
        return most_clicked(clicks), []
    counts = Counter([pair for pair in pairs if pair[1]])
    pair = max(counts, key=counts.__getitem__, default=None)
    majority = pair is not None and 2 * counts[pair] > counts.total()
    return pair, [NO_CLICKS] * (clicks is not None) + [NO_MAJORITY] * (not majority)


def table_of(clicks: Clicks) -> QueryCategories:
    """Returns what is stored of the clicks, sorted by query."""
    return {query: most_clicked(clicks[query]) for query in sorted(clicks)}


def clicks_of_table(table: QueryCategories) -> Clicks:
    """Returns clicks that choose the categories of a table."""
    return {query: Counter([pair]) for query, pair in table.items()}


class ListCategory:
    """Adds the category to the encoded context of a list without one, by the schema's `from`."""

    def __init__(self, schema: FeatureSchema):
        tree = schema.hierarchy
        assert tree is not None
        self._names = tree.parent, tree.child
        features = [feature.name for feature in id_features(schema, "context")]
        first = len(float_features(schema, "context"))
        self._at = [first + features.index(name) for name in self._names]
        self._counted = counted_ids(schema, "context")
        of_items = counted_ids(schema, "example")
        self._of_items = [of_items.index(name) for name in schema.item_categories]
        self._query = None if tree.query is None else self._counted.index(tree.query)
        self._labels = Labels(schema)

    def clicks(self, context: Encoded, items: Sequence[Encoded]) -> tuple[str, Counter[Pair]]:
        """Returns the query of a list, and how often each category was clicked."""
        query = "" if self._query is None else context[1][self._query]
        relevant = self._labels.relevant(items) if query else [False] * len(items)
        pairs = zip(self._pairs(items), relevant, strict=True)
        return query, Counter([pair for pair, clicked in pairs if clicked and pair[1]])

    def __call__(
        self, context: Encoded, items: Sequence[Encoded], clicks: Counter[Pair] | None
    ) -> tuple[Encoded, list[str]]:
        """Returns the context, and what to note; see `category_of`."""
        body, ids = context
        parts, counted = entries(body), list(ids)
        if parts[self._at[1]] != ids_entry(self._names[1], [""]):
            return context, []
        pair, notes = category_of(self._pairs(items), clicks)
        for name, at, value in zip(self._names, self._at, pair or ("", ""), strict=True):
            parts[at] = ids_entry(name, [value])
            if name in self._counted:
                counted[self._counted.index(name)] = value
        return (b"".join(parts), tuple(counted)), notes

    def _pairs(self, items: Sequence[Encoded]) -> list[Pair]:
        parent, child = self._of_items
        return [(ids[parent], ids[child]) for _, ids in items]
