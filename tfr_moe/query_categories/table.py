"""A table of labelled queries, read as a stream."""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.errors import UserError

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_HELD_OUT = 10  # one query in so many
_BATCH = 50_000


class Columns(NamedTuple):
    """The columns of a table of labelled queries; `parent` is None where categories have one level."""

    query: str
    child: str
    parent: str | None = None

    @property
    def names(self) -> list[str]:
        """Those that are there."""
        return [name for name in self if name is not None]


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
        yield file


def read_rows(path: Path, columns: Columns) -> tf.data.Dataset:
    """Dataset of (query, child, parent) strings, "" where a value is missing."""
    kind = Path(path.stem if path.suffix == ".gz" else path.name).suffix
    if kind not in _DELIMITERS:
        raise UserError(f"{path}: must be .csv or .tsv, with or without .gz")
    try:
        with _opened(path) as file:
            header = next(csv.reader(file, delimiter=_DELIMITERS[kind]), [])
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "no text in UTF-8"
        raise UserError(f"{path}: cannot be read ({reason})") from error
    for name in columns.names:
        if name not in header:
            raise UserError(f"{path}: has no column {name!r}; there are: {', '.join(header)}")
    places = [header.index(name) for name in columns.names]
    order = np.argsort(places)
    dataset = tf.data.experimental.CsvDataset(
        str(path),
        record_defaults=[""] * len(places),
        compression_type="GZIP" if path.suffix == ".gz" else None,
        header=True,
        field_delim=_DELIMITERS[kind],
        use_quote_delim=kind == ".csv",
        select_cols=sorted(places),
    )

    def in_order(*values: Any) -> tuple[Any, ...]:
        found = [values[list(order).index(index)] for index in range(len(places))]
        return (*found, tf.constant("")) if columns.parent is None else tuple(found)

    return dataset.map(in_order)


def _is_whole(query: Any, child: Any, *rest: Any) -> Any:
    return (tf.strings.length(tf.strings.strip(query)) > 0) & (tf.strings.length(child) > 0)


def count_categories(
    rows: tf.data.Dataset, path: str | Path
) -> tuple[Counter[tuple[str, str]], int]:
    """(rows of each (parent, child), rows without a query or a category)."""
    counts: Counter[tuple[str, str]] = Counter()
    left_out = 0
    try:
        for query, child, parent in rows.batch(_BATCH):
            whole = _is_whole(query, child)
            left_out += int(tf.reduce_sum(tf.cast(~whole, tf.int32)))
            pairs = tf.stack([parent[whole], child[whole]], axis=1).numpy()
            counts.update((top.decode(), sub.decode()) for top, sub in pairs)
    except (tf.errors.InvalidArgumentError, tf.errors.DataLossError) as error:
        reason = error.message.split("}} ")[-1].split(" [Op:")[0]
        raise UserError(f"{path}: {' '.join(reason.split())}") from None
    return counts, left_out


def label_rows(rows: tf.data.Dataset, classes: Sequence[tuple[str, str]]) -> tf.data.Dataset:
    """Dataset of (query, index of its category)."""
    keys = tf.constant(["\x1f".join(pair) for pair in classes])
    index = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(keys, tf.range(len(classes))), default_value=-1
    )

    def label(query: Any, child: Any, parent: Any) -> tuple[Any, Any]:
        return query, index.lookup(tf.strings.join([parent, child], "\x1f"))

    return rows.filter(_is_whole).map(label)


def is_held_out(query: Any, seed: int) -> Any:
    """Whether a query is of the held-out tenth: the same query always is, or never."""
    return tf.strings.to_hash_bucket_strong(query, _HELD_OUT, key=[seed, 1]) == 0
