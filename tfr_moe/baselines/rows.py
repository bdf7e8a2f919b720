"""Rows of numbers from lists, the interface of a ranker, and access to optional libraries."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tfr_moe._compat import light_import, tf
from tfr_moe.config.settings import FeatureSettings
from tfr_moe.data.builder import ElwcDatasetBuilder
from tfr_moe.data.folder import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.layers.features import id_lookup, paired_ids
from tfr_moe.layers.numerics import complete_numbers, list_ranks, raw_numbers
from tfr_moe.schema import MASK, Feature, FeatureSchema, FeatureTables

_BATCH_SIZE = 256

Log = Callable[[str], None]
"""Prints a line of progress."""


class RowRanker(Protocol):
    """A fitted ranker."""

    def predict(self, values: NDArray[np.float32]) -> NDArray[np.floating[Any]]:
        """Rows [T, columns] -> scores [T]."""

    def graph(self) -> Callable[[tf.Tensor], tf.Tensor]:
        """The same function as TensorFlow operations, which do not need the library."""

    def save(self, path: Path) -> None:
        """Writes the ranker to a file, which `load` of its module reads with the rows' columns."""


class Fitted(NamedTuple):
    """A trained ranker of the best round; `parameters` are leaves of the trees, or weights."""

    ranker: RowRanker
    rounds: int
    best_round: int
    parameters: int


def library(name: str, package: str) -> Any:
    """Imports an optional library; a UserError has the command that installs it."""
    # A light import exempts all objects from garbage collection: once is enough.
    if module := sys.modules.get(name):
        return module
    try:
        with light_import("scipy", name.partition(".")[0]):
            return importlib.import_module(name)
    except ImportError as error:
        raise UserError(
            f"{package} is needed for this model ({error}): pip install 'tfr_moe[baselines]'"
        ) from error


def merged(
    defaults: Mapping[str, Any], parameters: Mapping[str, Any], fixed: tuple[str, ...]
) -> dict[str, Any]:
    """Merges the library parameters of a configuration into the defaults, but not fixed ones.

    YAML reads 1e-3, without a point, as a string; it is converted to a number.
    """
    for name in parameters:
        if name in fixed:
            raise UserError(f"library_parameters: {name} is set by the model's name and the seed")
        if not str(name).isidentifier():
            # YAML reads `{num_leaves:7}` as this name with no value, which the libraries ignore.
            raise UserError(
                f"library_parameters: {name!r} is not a name; is a space missing after its colon?"
            )
    return {**defaults, **{name: _number(value) for name, value in parameters.items()}}


def log_round(log: Log, done: int, rounds: int, values: Mapping[str, float], package: str) -> None:
    """Logs the validation metrics of every 50th round."""
    if done % 50 == 0:
        metrics = ", ".join(f"{name} {value:.4f}" for name, value in values.items())
        log(f"round {done} of at most {rounds}: {metrics} by {package}")


def reject_unknown(names: Sequence[str], package: str) -> None:
    """Raises a UserError for parameters that a library ignores."""
    if names:
        raise UserError(
            f"library_parameters: {', '.join(map(repr, names))} is not a parameter of {package}"
        )


def _number(value: Any) -> Any:
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def whole_grades(labels: NDArray[np.float32], maximum: int, model: str) -> NDArray[np.int32]:
    """Converts labels to integers; a UserError for fractions and grades above `maximum`."""
    grades = labels.astype(np.int32)
    bad = np.flatnonzero((grades != labels) | (grades < 0) | (grades > maximum))
    if len(bad):
        raise UserError(
            f"model {model!r} takes whole grades from 0 to {maximum}. Received: {labels[bad[0]]}"
        )
    return grades


class Column(NamedTuple):
    """A column of the rows: a feature, or `feature[k]` of a wide one.

    `size` is the number of values of an ID column, 0 for unknown; None for a numeric one, which has
    `mean` and `std` over the training split.
    """

    name: str
    size: int | None
    mean: float = 0.0
    std: float = 1.0


class TabularEncoder:
    """Parsed lists -> rows of float32, one per valid item, in the order of the lists.

    A numeric feature is transformed as in the schema, not scaled; missing values are replaced as
    for the neural models. An ID becomes its index in the vocabulary, from 1 up, or its hash bucket;
    the child category is looked up with its parent. A `categorical_list` becomes the number of its
    IDs and its first ID. With `list_relative` rows also have the `list_ranks` of the items'
    numerics.
    """

    def __init__(self, schema: FeatureSchema, tables: FeatureTables, settings: FeatureSettings):
        self.schema = schema
        ignored = settings.ignored_features
        for name in ignored:
            schema.feature(name)
        used = [feature for feature in schema.features if feature.name not in ignored]
        if not used:
            raise UserError("ignored_features: contains all features, at least one is needed")
        self._of_items = [feature for feature in used if feature.scope == "example"]
        self._of_lists = [feature for feature in used if feature.scope == "context"]
        self._compared = [
            f
            for f in self._of_items
            if settings.list_relative and f.kind == "numeric" and not f.bucketize
        ]
        self._statistics = tables.statistics
        self.lookups = {
            f.name: id_lookup(f, tables.vocabularies) for f in used if f.kind != "numeric"
        }
        ranked = [column for feature in self._compared for column in feature.columns]
        self.columns = [
            *self._columns_of(self._of_items),
            # Mean and deviation of evenly spread ranks.
            *(Column(f"{name} (rank)", None, 0.5, 12**-0.5) for name in ranked),
            *self._columns_of(self._of_lists),
        ]

    def __call__(self, parsed: Mapping[str, tf.Tensor], mask: tf.Tensor) -> tf.Tensor:
        """Features as parsed by `schema.feature_spec`, and mask [B, L] -> [T, columns]."""
        of_items = list(self._blocks(self._of_items, parsed))
        if self._compared:
            numbers = [self._numbers(f, parsed)[..., : f.width] for f in self._compared]
            of_items.append(list_ranks(tf.concat(numbers, axis=-1), mask))
        blocks = [tf.boolean_mask(block, mask) for block in of_items]
        rows = tf.where(mask)[:, 0]
        blocks += [tf.gather(block, rows) for block in self._blocks(self._of_lists, parsed)]
        return tf.concat(blocks, axis=-1)

    def _blocks(self, features: Sequence[Feature], parsed: Mapping[str, Any]) -> Iterator[Any]:
        """Yields float32 tensors [..., k]."""
        for feature in features:
            if feature.kind == "numeric":
                yield self._numbers(feature, parsed)
                continue
            ids = paired_ids(self.schema, feature.name, parsed)
            if feature.kind == "categorical_list":
                present = tf.cast(tf.strings.length(ids) > 0, tf.float32)
                yield tf.reduce_sum(present, axis=-1, keepdims=True)
            yield tf.cast(self.lookups[feature.name](ids[..., :1]), tf.float32)

    def _numbers(self, feature: Feature, parsed: Mapping[str, Any]) -> Any:
        values = raw_numbers(self.schema, feature.name, parsed)
        statistics = self._statistics.get(feature.scope, {})
        columns = [statistics.get(column, {}) for column in feature.columns]
        return complete_numbers(feature, columns, values)

    def _columns_of(self, features: Sequence[Feature]) -> Iterator[Column]:
        """Yields the columns of `_blocks`."""
        for feature in features:
            name = feature.name
            if feature.kind == "numeric":
                statistics = {} if feature.bucketize else self._statistics.get(feature.scope, {})
                for column in feature.inputs:
                    of = statistics.get(column, {})
                    mean, std = float(of.get("mean", 0.0)), float(of.get("std", 1.0))
                    yield Column(column, None, mean, std or 1.0)
                continue
            size = feature.hash_buckets or self.lookups[name].vocabulary_size()
            if feature.kind == "categorical_list":
                yield Column(f"{name} (number)", None, 0.0, float(feature.max_length))
            yield Column(name if feature.kind == "categorical" else f"{name} (first)", size)


class Rows(NamedTuple):
    """The items of a split, list after list.

    Attributes:
        values: [T, columns] float32, a memory-mapped file.
        labels: [T] float32.
        weights: [T] float32, 1 if the schema has no weight.
        sizes: [n] int64, number of items of each list.
        positions: [T] float32, 0 where they are not used.
    """

    values: NDArray[np.float32]
    labels: NDArray[np.float32]
    weights: NDArray[np.float32]
    sizes: NDArray[np.int64]
    columns: list[Column]
    positions: NDArray[np.float32]

    @property
    def weighted(self) -> bool:
        """Whether any weight differs from 1."""
        return bool((self.weights != 1.0).any())

    def blocks(self, rows: int = 1 << 16) -> Iterator[tuple[slice, NDArray[np.int64]]]:
        """Yields slices of whole lists with about `rows` rows each, and the sizes of the lists."""
        ends = np.cumsum(self.sizes)
        start = first = 0
        while start < len(self.labels):
            last = min(int(np.searchsorted(ends, start + rows)), len(ends) - 1)
            end = int(ends[last])
            yield slice(start, end), self.sizes[first : last + 1]
            start, first = end, last + 1


def write_rows(
    folder: DataFolder,
    split: str,
    out: Path,
    move: Callable[[int, int | None], None],
    features: FeatureSettings,
    with_positions: bool = False,
) -> Rows:
    """Reads a split once, batch by batch, and writes its rows below the folder `out`."""
    encoder = TabularEncoder(folder.schema, folder.tables(), features)
    path, done = out / f"{split}.values", 0
    parts: list[dict[str, Any]] = []
    with path.open("wb") as file:
        for parsed in ElwcDatasetBuilder(folder, _BATCH_SIZE).build_parsed_dataset(split):
            # Unlike `ndarray.tofile`, it names the reason of an error, such as a full disk.
            file.write(encoder(parsed, parsed[MASK]).numpy().data)
            parts.append(_arrays(folder.schema, parsed, with_positions))
            done += int(parsed[MASK].shape[0])
            move(done, folder.num_lists(split))
    if not any(len(part["labels"]) for part in parts):
        raise UserError(f"data {folder.path}: split {split} has no items")
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    values: Any = np.memmap(path, np.float32, "r").reshape(-1, len(encoder.columns))
    return Rows(values=values, columns=encoder.columns, **arrays)


def _arrays(schema: FeatureSchema, parsed: dict[str, Any], with_positions: bool) -> dict[str, Any]:
    """The arrays of `Rows`, without values and columns, of a batch."""
    mask = parsed[MASK]
    sizes = np.sum(mask.numpy(), axis=1, dtype=np.int64)

    def of_items(name: str | None, default: float = 0.0) -> NDArray[np.float32]:
        if name is None:
            return np.full(sizes.sum(), default, np.float32)
        return tf.boolean_mask(parsed[name][..., 0], mask).numpy()

    return {
        "labels": of_items(schema.label),
        "weights": of_items(schema.weight, 1.0),
        "positions": of_items(schema.position if with_positions else None),
        "sizes": sizes[sizes > 0],
    }
