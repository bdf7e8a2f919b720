"""The lists of the Complete Journey as arrays on disk, with what is relative to the list."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tfr_moe import FeatureSchema
from tfr_moe.errors import UserError

SPLITS = ("train", "validation", "test")
LENGTH = 20
"""Items of a list; the sampling of the data set never gives more."""
_RANKED_TOGETHER = 2048

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Lists:
    """Lists of one split.

    Attributes:
        numbers: float32 [n, L, 2 f], standardised numerics of the items and their ranks.
        context: float32 [n, c], standardised numerics of the list.
        ids: int32 [n, d], codes of the categorical context; the first two are parent and child.
        labels: float32 [n, L], -1 at padding.
        hashes: int64 [n], a number of each list that does not depend on the rows of others.
    """

    numbers: Floats
    context: Floats
    ids: NDArray[np.int32]
    labels: Floats
    hashes: NDArray[np.int64]

    def save(self, folder: Path) -> None:
        """Writes one file for each array."""
        folder.mkdir(parents=True, exist_ok=True)
        for field in fields(self):
            np.save(folder / f"{field.name}.npy", getattr(self, field.name))


def load(folder: Path) -> Lists:
    """Maps the arrays of `Lists.save`."""
    return Lists(*(np.load(folder / f"{f.name}.npy", mmap_mode="r") for f in fields(Lists)))


def list_ranks(numbers: Floats, valid: NDArray[np.bool_]) -> Floats:
    """Returns the share of the other valid items with a smaller value, equal ones count half.

    Args:
        numbers: [n, L, f].
        valid: [n, L].

    Example:
        >>> numbers = np.float32([[[5], [1], [5], [9]]])
        >>> list_ranks(numbers, np.array([[True, True, True, False]]))[0, :, 0].tolist()
        [0.75, 0.0, 0.75, 0.0]
    """
    ranks = np.zeros_like(numbers)
    for start in range(0, len(numbers), _RANKED_TOGETHER):
        part = slice(start, start + _RANKED_TOGETHER)
        x, v = numbers[part], valid[part]
        below = (x[:, None] < x[:, :, None]) + 0.5 * (x[:, None] == x[:, :, None])
        count = np.einsum("nijf,nj->nif", below.astype(np.float32), v.astype(np.float32)) - 0.5
        others = np.maximum(v.sum(axis=1) - 1, 1)[:, None, None]
        ranks[part] = np.where(v[..., None], count / others, 0)
    return ranks


def prepare(rows: Path, schema: FeatureSchema, out: Path) -> None:
    """Writes the arrays of all splits, with scales and codes of the training lists.

    Args:
        rows: the folder of Parquet files of `experiments.datasets.complete_journey`.
        schema: of the rows.
        out: a folder for each split is made there.

    Raises:
        UserError: if there are no files of the training or validation split.
    """
    scales: dict[str, tuple[float, float]] = {}
    codes: dict[str, pa.Array] = {}
    for split in SPLITS:
        paths = sorted(rows.glob(f"{split}-*.parquet"))
        if not paths and split != "test":
            raise UserError(f"{rows}: no files {split}-*.parquet")
        if paths and not (out / split).exists():
            table = pa.concat_tables([pq.read_table(path).unify_dictionaries() for path in paths])
            _arrays(table.combine_chunks(), schema, scales, codes).save(out / split)


def _arrays(
    table: pa.Table,
    schema: FeatureSchema,
    scales: dict[str, tuple[float, float]],
    codes: dict[str, pa.Array],
) -> Lists:
    list_ids = table["list_id"].combine_chunks()
    index = list_ids.indices.to_numpy()
    starts = np.flatnonzero(np.r_[True, index[1:] != index[:-1]])
    lengths = np.diff(np.r_[starts, len(index)])
    row = np.repeat(np.arange(len(starts)), lengths)
    column = np.arange(len(index)) - np.repeat(starts, lengths)

    def by_item(values: Floats, padding: float) -> Floats:
        result = np.full((len(starts), LENGTH), padding, np.float32)
        result[row, column] = values
        return result

    labels = by_item(table[schema.labels[0]].to_numpy(), -1)
    numeric = [f for f in schema.features if f.kind == "numeric"]
    items = [f.name for f in numeric if f.scope == "example"]
    context = [f.name for f in numeric if f.scope == "context"]
    numbers = {
        f.name: _standardised(table[f.name].to_numpy(), f.transform == "log1p", f.name, scales)
        for f in numeric
    }
    of_items = np.stack([by_item(numbers[name], 0) for name in items], axis=-1)
    hierarchy = schema.hierarchy
    categorical = [f.name for f in schema.features if f.kind == "categorical"]
    first = [hierarchy.parent, hierarchy.child] if hierarchy else []
    names = [*first, *(name for name in categorical if name not in first)]
    return Lists(
        np.concatenate([of_items, list_ranks(of_items, labels >= 0)], axis=-1),
        np.stack([numbers[name][starts] for name in context], axis=-1),
        np.stack([_coded(table[name], name, codes)[starts] for name in names], axis=-1),
        labels,
        _hashes(list_ids.dictionary.take(pa.array(index[starts])).to_pylist()),
    )


def _standardised(
    values: Floats, logarithm: bool, name: str, scales: dict[str, tuple[float, float]]
) -> Floats:
    numbers = np.log1p(values.astype(np.float64)) if logarithm else values.astype(np.float64)
    if name not in scales:
        scales[name] = (float(numbers.mean()), float(numbers.std()) or 1.0)
    mean, deviation = scales[name]
    return ((numbers - mean) / deviation).astype(np.float32)


def _coded(column: pa.ChunkedArray, name: str, codes: dict[str, pa.Array]) -> NDArray[np.int32]:
    """Codes from 1 on of the values of the training lists; 0 for others."""
    array = column.combine_chunks()
    # The dictionary of a file also has values that none of its rows has.
    used = pa.array(np.unique(array.indices.to_numpy()))
    known = codes.setdefault(name, array.dictionary.take(used))
    table = {value: code for code, value in enumerate(known.to_pylist(), start=1)}
    lookup = np.array([table.get(value, 0) for value in array.dictionary.to_pylist()], np.int32)
    return lookup[array.indices.to_numpy()]


def _hashes(list_ids: Sequence[str]) -> NDArray[np.int64]:
    return np.array([zlib.crc32(list_id.encode()) for list_id in list_ids], np.int64)


def sizes(arrays: Lists) -> Mapping[str, int | list[int]]:
    """The widths that a model needs: numbers, context, and the largest code of each id."""
    return {
        "numbers": arrays.numbers.shape[-1],
        "context": arrays.context.shape[-1],
        "ids": [int(code) for code in arrays.ids.max(axis=0)],
    }
