"""Statistics, vocabularies and sample records of lists in memory, equal to those of `build`."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import compress, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfr_moe.data.builder import Dictionary, ParsedSplit
from tfr_moe.elwc.categories import Clicks, Pair, category_of
from tfr_moe.elwc.encoder import ScopeEncoder
from tfr_moe.elwc.statistics import SCOPES, ColumnStatistics, Moments, merge, statistics_of
from tfr_moe.elwc.values import minima
from tfr_moe.elwc.vocabularies import vocabulary_of
from tfr_moe.elwc.wire import ids_entry, list_record
from tfr_moe.schema import Feature, FeatureSchema, FeatureTables, Scope

_BLOCK = 1 << 16
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
    columns = split.columns(feature.scope)
    ids: Dictionary = columns[feature.name]
    keys = [word.decode("utf-8") for word in ids.words]
    tree = schema.hierarchy
    if tree is not None and feature.name == tree.child:
        parents: Dictionary = columns[tree.parent]
        pairs = parents.codes[:, 0].astype(np.int64) * len(keys) + ids.codes[:, 0]
        distinct, numbers = np.unique(pairs, return_counts=True)
        values = [
            {tree.parent: parents.words[parent].decode("utf-8"), tree.child: keys[child]}
            for parent, child in (divmod(pair, len(keys)) for pair in distinct.tolist())
        ]
        keys = [schema.lookup_key(feature, pair) if pair[tree.child] else "" for pair in values]
    else:
        numbers = np.bincount(ids.codes.ravel(), minlength=len(keys))
    # A vocabulary file has one ID per line.
    counted = [
        (key, count)
        for key, count in zip(keys, numbers.tolist(), strict=True)
        if key and count and "\n" not in key and "\r" not in key
    ]
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
        self._queries = None if query is None else _words(split.context[query])

    def clicks(self) -> Clicks:
        """Returns the clicks of each query."""
        clicks: dict[str, Counter[Pair]] = defaultdict(Counter)
        for index, own in self._own_clicks().items():
            clicks[self._query(index)].update(own)
        return clicks

    def _own_clicks(self) -> dict[int, Counter[Pair]]:
        """Returns the clicks of each list with a query."""
        rows = np.flatnonzero(self._split.example[self._label][:, 0] > 0)
        lists = np.searchsorted(self._split.row_splits, rows, side="right") - 1
        clicks: dict[int, Counter[Pair]] = defaultdict(Counter)
        for row, index in zip(rows.tolist(), lists.tolist(), strict=True):
            if self._children[row] and self._query(index):
                clicks[index][self._parents[row], self._children[row]] += 1
        return clicks

    def _query(self, index: int) -> str:
        assert self._queries is not None
        return self._queries[index]

    def add(self, clicks: Clicks | None, training: bool) -> Counter[str]:
        """Gives lists without a category one, as `build` does; returns notes with their number.

        `clicks` are None for `from: majority`; those of a `training` split are among them.
        """
        names = self._tree.parent, self._tree.child
        split, notes = self._split, Counter[str]()
        own = self._own_clicks() if training and clicks is not None else {}
        given = list(zip(*(_words(split.context[name]) for name in names), strict=True))
        for i, (start, end) in enumerate(pairwise(split.row_splits.tolist())):
            if not given[i][1]:
                of_query = None
                if clicks is not None:
                    of_query = clicks.get(self._query(i), _NO_CLICKS) - own.get(i, _NO_CLICKS)
                pairs = zip(self._parents[start:end], self._children[start:end], strict=True)
                pair, found = category_of(pairs, of_query)
                given[i] = pair or ("", "")
                notes.update(found)
        for name, words in zip(names, zip(*given, strict=True), strict=True):
            distinct = {word: code for code, word in enumerate(dict.fromkeys(words))}
            codes = np.array([distinct[word] for word in words], np.int32)[:, None]
            encoded = [word.encode("utf-8") for word in distinct]
            split.context[name] = Dictionary(codes, np.array(encoded, np.object_))
        return notes


def _words(ids: Dictionary) -> list[str]:
    texts = np.array([word.decode("utf-8") for word in ids.words], np.object_)
    return texts[ids.codes[:, 0]].tolist()


def serialized_lists(schema: FeatureSchema, split: ParsedSplit, limit: int) -> list[bytes]:
    """Returns the first `limit` lists of labelled data as serialized `ExampleListWithContext`s."""
    encode_context = ScopeEncoder(schema, "context").typed
    encode_item = ScopeEncoder(schema, "example", minima(schema)).typed
    encode_id = ids_entry(schema.list_id)
    records = []
    for index in range(min(limit, len(split.row_splits) - 1)):
        start, end = split.row_splits[index : index + 2].tolist()
        context = _values(schema, "context", split.context, index)
        items = [_values(schema, "example", split.example, row) for row in range(start, end)]
        list_id = encode_id([_text(split.context[schema.list_id][index])])
        bodies = [encode_item(item)[0] for item in items]
        records.append(list_record(bodies, encode_context(context)[0] + list_id))
    return records


def _text(words: NDArray[Any]) -> str:
    return words[0].decode("utf-8")


def _values(
    schema: FeatureSchema, scope: Scope, columns: dict[str, Any], row: int
) -> dict[str, Any]:
    """The typed values of one row, as `RowParser` returns them."""
    values: dict[str, Any] = {}
    for feature in schema.select(scope):
        stored, part = schema.stored_at(feature.name)
        if feature.kind == "numeric":
            numbers = columns[stored][row][part].tolist()
            values[feature.name] = numbers[0] if feature.width == 1 else numbers
        else:
            ids: Dictionary = columns[stored]
            texts = [ids.words[code].decode("utf-8") for code in ids.codes[row]]
            present = list(compress(texts, texts))
            values[feature.name] = texts[0] if feature.kind == "categorical" else present
    if scope == "example":
        values |= {name: float(columns[name][row, 0]) for name in minima(schema)}
    return values
