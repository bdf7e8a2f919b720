"""A split as rows in files that are mapped into memory: what the libraries read, a block at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfr_moe._compat import tf
from tfr_moe.baselines.columns import Column, RowEncoder
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.errors import UserError
from tfr_moe.schema import MASK

_LISTS_AT_A_TIME = 256


class Rows(NamedTuple):
    """The items of a split, list after list. The arrays are maps of files.

    Attributes:
        values: [T, columns] float32.
        labels: [T] float32.
        weights: [T] float32, 1 where the schema has no weight.
        sizes: [n] int64, the number of items of each list.
        columns: what the columns of `values` are.
    """

    values: NDArray[np.float32]
    labels: NDArray[np.float32]
    weights: NDArray[np.float32]
    sizes: NDArray[np.int64]
    columns: list[Column]

    @property
    def weighted(self) -> bool:
        """Whether any item weighs other than 1."""
        return bool((self.weights != 1.0).any())

    def blocks(self, rows: int = 1 << 16) -> Iterator[slice]:
        """Slices of whole lists with about so many rows each.

        Example:
            >>> one = np.ones(5, np.float32)
            >>> rows = Rows(one[:, None], one, one, np.array([2, 2, 1]), [])
            >>> list(rows.blocks(3))
            [slice(0, 4, None), slice(4, 5, None)]
        """
        ends = np.cumsum(self.sizes)
        start = 0
        while start < len(self.labels):
            at = min(int(np.searchsorted(ends, start + rows)), len(ends) - 1)
            yield slice(start, int(ends[at]))
            start = int(ends[at])


def write_rows(
    folder: DataFolder,
    split: str,
    out: Path,
    report: Callable[[int, int | None], None],
    left_out: Sequence[str] = (),
) -> Rows:
    """Reads a split once, batch by batch, and writes it as rows below `out`.

    Args:
        folder: the data set.
        split: which.
        out: an existing folder.
        report: told of the lists that are done and of how many there are, None where unknown.
        left_out: features that are no columns.

    Raises:
        UserError: where the split has no item.
    """
    encoder = RowEncoder(folder.schema, folder.tables(), left_out)
    paths = {name: out / f"{split}.{name}" for name in ("values", "labels", "weights", "sizes")}
    files: dict[str, IO[bytes]] = {name: path.open("wb") for name, path in paths.items()}
    try:
        done = 0
        dataset = ElwcDatasetBuilder(folder, _LISTS_AT_A_TIME).build_parsed_dataset(split)
        for parsed in dataset:
            for name, array in _arrays(folder, encoder, parsed).items():
                array.tofile(files[name])
            done += int(parsed[MASK].shape[0])
            report(done, folder.num_lists(split))
    finally:
        for file in files.values():
            file.close()
    if not paths["labels"].stat().st_size:
        raise UserError(f"data {folder.path}: split {split} has no items")
    values: Any = np.memmap(paths["values"], np.float32, "r").reshape(-1, len(encoder.columns))
    return Rows(
        values,
        np.memmap(paths["labels"], np.float32, "r"),
        np.memmap(paths["weights"], np.float32, "r"),
        np.fromfile(paths["sizes"], np.int64),
        encoder.columns,
    )


def _arrays(folder: DataFolder, encoder: RowEncoder, parsed: dict[str, Any]) -> dict[str, Any]:
    schema, mask = folder.schema, parsed[MASK]
    labels = tf.boolean_mask(parsed[schema.label][..., 0], mask).numpy()
    weights = np.ones_like(labels)
    if schema.weight is not None:
        weights = tf.boolean_mask(parsed[schema.weight][..., 0], mask).numpy()
    sizes = np.sum(mask.numpy(), axis=1, dtype=np.int64)
    return {
        "values": encoder(parsed, mask),
        "labels": labels,
        "weights": weights,
        "sizes": sizes[sizes > 0],
    }
