"""Statistics, vocabularies and sample records of lists in memory, equal to those of `build`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from tfr_moe.data.builder import Dictionary, ParsedSplit
from tfr_moe.elwc.categories import Clicks, Pair, category_of
from tfr_moe.elwc.encoder import scope_floats
from tfr_moe.elwc.statistics import SCOPES, ColumnStatistics, Moments, merge, statistics_of
from tfr_moe.elwc.values import float_features, id_features, minima
from tfr_moe.elwc.vocabularies import vocabulary_of
from tfr_moe.elwc.wire import ids_entry, list_record
from tfr_moe.schema import Feature, FeatureSchema, FeatureTables, Scope

_BLOCK = 1 << 16
_LISTS = 1 << 12  # that are serialized together
_NO_CLICKS: Counter[Pair] = Counter()


def tables_of(schema: FeatureSchema, split: ParsedSplit) -> FeatureTables:
    """Returns statistics and vocabularies of a training split."""
    moments = [_moments(schema, scope, split) for scope in SCOPES]
    words = {f.name: _vocabulary(schema, f, split) for f in schema.features if f.has_vocabulary}
    return FeatureTables(statistics_of(schema, moments), words)


def _moments(schema: FeatureSchema, scope: Scope, split: ParsedSplit) -> Moments:
    statistics = ColumnStatistics(schema, scope)
    blocks = [split.columns(scope)[name] for name in schema.stored_numbers(scope)]
    moments = statistics.none()
    for start in range(0, len(blocks[0]) if blocks else 0, _BLOCK):
        parts = [block[start : start + _BLOCK] for block in blocks]
        moments = merge(moments, statistics.of(np.concatenate(parts, axis=1)))
    return moments


def _vocabulary(schema: FeatureSchema, feature: Feature, split: ParsedSplit) -> list[str]:
    columns, tree = split.columns(feature.scope), schema.hierarchy
    ids: Dictionary = columns[feature.name]
    if tree is not None and feature.name == tree.child:
        pairs = Counter(zip(_words(columns[tree.parent]), _words(ids), strict=True))
        counts = [
            (schema.lookup_key(feature, {tree.parent: parent, tree.child: child}), count)
            for (parent, child), count in pairs.items()
            if child
        ]
    else:
        words = [word.decode("utf-8") for word in ids.words]
        numbers = np.bincount(ids.codes.ravel(), minlength=len(words))
        counts = list(zip(words, numbers.tolist(), strict=True))
    # A vocabulary file has one ID per line.
    counted = [(k, n) for k, n in counts if k and n and "\n" not in k and "\r" not in k]
    return vocabulary_of(feature, sorted(counted))


class ItemCategories:
    """The categories of the items of a split, and the clicks on them."""

    def __init__(self, schema: FeatureSchema, split: ParsedSplit):
        assert schema.hierarchy is not None
        self._tree, self._split, self._label = schema.hierarchy, split, schema.label
        self._parents, self._children = (
            _words(split.example[name]) for name in schema.item_categories
        )
        query = schema.hierarchy.query
        self._queries = [] if query is None else _words(split.context[query])

    def clicks(self) -> Clicks:
        """Returns the clicks of each query."""
        clicks: dict[str, Counter[Pair]] = defaultdict(Counter)
        for index, of_list in self._clicks_of_lists().items():
            clicks[self._queries[index]].update(of_list)
        return clicks

    def _clicks_of_lists(self) -> dict[int, Counter[Pair]]:
        """Returns the clicks of each list with a query."""
        rows = np.flatnonzero(self._split.example[self._label][:, 0] > 0)
        lists = np.searchsorted(self._split.row_splits, rows, side="right") - 1
        clicks: dict[int, Counter[Pair]] = defaultdict(Counter)
        for row, index in zip(rows.tolist(), lists.tolist(), strict=True):
            if self._children[row] and self._queries[index]:
                clicks[index][self._parents[row], self._children[row]] += 1
        return clicks

    def add(self, clicks: Clicks | None, training: bool) -> Counter[str]:
        """Gives lists without a category one, as `build` does; returns notes with their number.

        `clicks` are None for `from: majority`; those of a `training` split are among them.
        """
        names = self._tree.parent, self._tree.child
        split, notes = self._split, Counter[str]()
        of_lists = self._clicks_of_lists() if training and clicks is not None else {}
        given = list(zip(*(_words(split.context[name]) for name in names), strict=True))
        for i, (start, end) in enumerate(pairwise(split.row_splits.tolist())):
            if not given[i][1]:
                of_query = None
                if clicks is not None:
                    of_all = clicks.get(self._queries[i], _NO_CLICKS)
                    of_query = of_all - of_lists.get(i, _NO_CLICKS)
                pairs = zip(self._parents[start:end], self._children[start:end], strict=True)
                pair, noted = category_of(pairs, of_query)
                given[i] = pair or ("", "")
                notes.update(noted)
        for name, words in zip(names, zip(*given, strict=True), strict=True):
            distinct = {word: code for code, word in enumerate(dict.fromkeys(words))}
            codes = np.array([distinct[word] for word in words], np.int32)[:, None]
            encoded = [word.encode("utf-8") for word in distinct]
            split.context[name] = Dictionary(codes, np.array(encoded, np.object_))
        return notes


def _words(ids: Dictionary) -> list[str]:
    texts = np.array([word.decode("utf-8") for word in ids.words], np.object_)
    return texts[ids.codes[:, 0]].tolist()


def serialized_lists(schema: FeatureSchema, split: ParsedSplit, limit: int) -> Iterator[bytes]:
    """Yields the first `limit` lists of labelled data as serialized `ExampleListWithContext`s."""
    number = min(limit, len(split.row_splits) - 1)
    for first in range(0, number, _LISTS):
        lists = slice(first, min(first + _LISTS, number))
        offsets = split.row_splits[first : lists.stop + 1]
        contexts = _entries(schema, "context", split, lists)
        items = _entries(schema, "example", split, slice(offsets[0], offsets[-1]))
        list_ids = split.context[schema.list_id][lists, 0]
        bounds = pairwise((offsets - offsets[0]).tolist())
        for context, list_id, (start, end) in zip(contexts, list_ids, bounds, strict=True):
            id_entry = ids_entry(schema.list_id, [list_id.decode("utf-8")])
            yield list_record(items[start:end], context + id_entry)


def _entries(schema: FeatureSchema, scope: Scope, split: ParsedSplit, rows: slice) -> list[bytes]:
    """Returns the map entries of some rows of a scope."""
    columns, extras = split.columns(scope), minima(schema) if scope == "example" else ()
    floats = [columns[name][rows] for name, _ in float_features(schema, scope, extras)]
    size = rows.stop - rows.start
    numbers = np.concatenate([np.zeros((size, 0), np.float32), *floats], axis=1)
    parts = [scope_floats(schema, scope).pack_rows(numbers, set())]
    for feature in id_features(schema, scope):
        ids: Dictionary = columns[feature.name]
        texts = [[ids.words[code].decode("utf-8") for code in row] for row in ids.codes[rows]]
        parts.append([ids_entry(feature.name, row) for row in texts])
    return [b"".join(row) for row in zip(*parts, strict=True)]
