"""Statistics, vocabularies and sample records of lists in memory, equal to those of `build`."""

from __future__ import annotations

from itertools import compress, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfr_moe.data.cache import Dictionary, ParsedSplit
from tfr_moe.elwc.categories import most_frequent
from tfr_moe.elwc.encoder import ListEncoder
from tfr_moe.elwc.moments import ColumnStatistics, merge
from tfr_moe.schema import PACKED, Feature, FeatureSchema, Scope, Statistics

_BLOCK = 1 << 16


def statistics_of(schema: FeatureSchema, split: ParsedSplit) -> Statistics:
    """Returns scope -> column -> count, mean, std, min and max after the feature's transform."""
    scopes: tuple[Scope, ...] = ("context", "example")
    return {scope: _statistics(schema, scope, split) for scope in scopes}


def _statistics(schema: FeatureSchema, scope: Scope, split: ParsedSplit) -> dict[str, Any]:
    statistics = ColumnStatistics(schema, scope)
    stored = split.context if scope == "context" else split.example
    names = [feature.name for feature in schema.select(scope, "numeric")]
    blocks = [stored[name] for name in ([PACKED[scope]] if names and schema.packed else names)]
    moments = statistics.none()
    for start in range(0, len(blocks[0]) if blocks else 0, _BLOCK):
        parts = [block[start : start + _BLOCK] for block in blocks]
        moments = merge(moments, statistics.of(np.concatenate(parts, axis=1)))
    return statistics.describe(moments)


def add_categories(schema: FeatureSchema, split: ParsedSplit) -> int:
    """Gives lists without a category the most frequent one of their items, as `build` does.

    Returns:
        The number of lists in which no category has the majority.
    """
    assert schema.hierarchy is not None
    names = schema.hierarchy.parent, schema.hierarchy.child
    parents, children = (_words(split.example[name]) for name in schema.item_categories)
    given = list(zip(*(_words(split.context[name]) for name in names), strict=True))
    lost = 0
    for i, (start, end) in enumerate(pairwise(split.row_splits.tolist())):
        if not given[i][1]:
            pairs = zip(parents[start:end], children[start:end], strict=True)
            pair, majority = most_frequent(pairs)
            given[i] = pair or (b"", b"")
            lost += not majority
    for name, words in zip(names, zip(*given, strict=True), strict=True):
        distinct = {word: code for code, word in enumerate(dict.fromkeys(words))}
        codes = np.array([distinct[word] for word in words], np.int32)[:, None]
        split.context[name] = Dictionary(codes, np.array(list(distinct), np.object_))
    return lost


def _words(ids: Dictionary) -> list[bytes]:
    return ids.words[ids.codes[:, 0]].tolist()


def vocabularies_of(schema: FeatureSchema, split: ParsedSplit) -> dict[str, list[str]]:
    """Returns feature -> its IDs, the most frequent first, equally frequent ones by their text."""
    return {
        feature.name: _vocabulary(schema, feature, split)
        for feature in schema.features
        if feature.has_vocabulary
    }


def _vocabulary(schema: FeatureSchema, feature: Feature, split: ParsedSplit) -> list[str]:
    columns = split.context if feature.scope == "context" else split.example
    ids: Dictionary = columns[feature.name]
    texts = [word.decode("utf-8") for word in ids.words]
    hierarchy = schema.hierarchy
    if hierarchy is not None and feature.name == hierarchy.child:
        parents: Dictionary = columns[hierarchy.parent]
        pairs = parents.codes[:, 0].astype(np.int64) * len(texts) + ids.codes[:, 0]
        distinct, counts = np.unique(pairs, return_counts=True)
        counted = []
        for pair, count in zip(distinct.tolist(), counts.tolist(), strict=True):
            parent, child = divmod(pair, len(texts))
            if texts[child]:
                values = {
                    hierarchy.parent: parents.words[parent].decode("utf-8"),
                    feature.name: texts[child],
                }
                counted.append((schema.lookup_key(feature, values), count))
    else:
        numbers = np.bincount(ids.codes.ravel(), minlength=len(texts)).tolist()
        counted = [entry for entry in zip(texts, numbers, strict=True) if entry[0]]
    # A vocabulary file has one ID per line.
    frequent = [
        (-count, text)
        for text, count in counted
        if count >= max(1, feature.min_count) and "\n" not in text and "\r" not in text
    ]
    return [text for _, text in sorted(frequent)[: feature.max_vocabulary]]


def serialized_lists(schema: FeatureSchema, split: ParsedSplit, limit: int) -> list[bytes]:
    """Returns the first `limit` lists as serialized `ExampleListWithContext`s, without labels."""
    encoder = ListEncoder(schema)
    records = []
    for index in range(min(limit, len(split.row_splits) - 1)):
        start, end = split.row_splits[index : index + 2].tolist()
        context = _values(schema, "context", split.context, index)
        items = [_values(schema, "example", split.example, row) for row in range(start, end)]
        records.append(encoder.encode(_text(split.context[schema.list_id][index]), context, items))
    return records


def _text(words: NDArray[Any]) -> str:
    return words[0].decode("utf-8")


def _values(
    schema: FeatureSchema, scope: Scope, columns: dict[str, Any], row: int
) -> dict[str, Any]:
    """The typed values of one row, as `RowParser` returns them."""
    values: dict[str, Any] = {}
    start = 0
    for feature in schema.select(scope):
        if feature.kind == "numeric":
            block = columns[PACKED[scope] if schema.packed else feature.name][row]
            part = block[start : start + feature.width] if schema.packed else block
            numbers = part.tolist()
            start += feature.width
            values[feature.name] = numbers[0] if feature.width == 1 else numbers
        else:
            ids: Dictionary = columns[feature.name]
            texts = [ids.words[code].decode("utf-8") for code in ids.codes[row]]
            present = list(compress(texts, texts))
            values[feature.name] = texts[0] if feature.kind == "categorical" else present
    if scope == "example":
        for name in (*schema.labels, schema.position, schema.weight):
            if name is not None and name in columns:
                values[name] = float(columns[name][row, 0])
    return values
