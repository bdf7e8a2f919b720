"""The splits of a data-set folder as `tf.data`, read from records or parsed into memory."""

from __future__ import annotations

import functools
import glob
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from tfr_moe._compat import tf, tfr
from tfr_moe.data.folder import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.schema import MASK, FeatureSchema, Scope
from tfr_moe.utils.failures import GRAPH_ERROR

TRAINING_SPLITS = ("train", "validation")
"""The splits that training reads; the test split is never opened."""
AUTO_CACHE_BYTES = 2**28
"""Parsed splits up to this size are kept in memory by `cached(folder, "auto")`."""
_PARSED_BATCH = 512
_ID_BYTES = 40  # of a short string in memory

Finish = Callable[[dict[str, tf.Tensor]], Any]
"""Makes the elements of a data set from a batch of all columns."""


class Dictionary(NamedTuple):
    """A dictionary-encoded column of IDs: `codes`, int32 [rows, width], index `words`, as bytes."""

    codes: np.ndarray
    words: np.ndarray


class ParsedSplit(NamedTuple):
    """A parsed split. Columns are arrays or, for IDs of data frames, a `Dictionary`.

    Attributes:
        context: feature name -> [lists, width].
        example: feature or label name -> [items, width]; list i has the items from row_splits[i] to
            row_splits[i + 1] - 1.
        row_splits: int64, [lists + 1].
    """

    context: dict[str, Any]
    example: dict[str, Any]
    row_splits: np.ndarray

    def columns(self, scope: Scope) -> dict[str, Any]:
        """The columns of a scope."""
        return self.context if scope == "context" else self.example


def column_specs(schema: FeatureSchema) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parsing specs of all context and example columns of the records."""
    context = {**schema.feature_spec("context"), **schema.role_spec("context")}
    example = {**schema.feature_spec("example"), **schema.role_spec("example")}
    return context, example


def check_finite(
    parsed: dict[str, tf.Tensor], schema: FeatureSchema, where: str
) -> dict[str, tf.Tensor]:
    """Returns parsed lists unchanged, after a check that all of their numbers are finite.

    A single NaN would turn the weights of a model into NaN, and an infinite value is clipped. NaN
    is allowed where it stands for a missing value that the model replaces. The InvalidArgumentError
    names `where` and the feature; `file_errors` makes it a `UserError`.
    """
    roles = (*schema.labels, schema.position, schema.weight)
    stored = schema.stored_numbers("context") | schema.stored_numbers("example")
    stored |= {name: [name] for name in roles if name}
    numerics = [feature for feature in schema.features if feature.kind == "numeric"]
    replaced = {c for f in numerics if math.isnan(f.missing_number) for c in f.columns}
    of_columns = []
    for name, columns in stored.items():
        finite = tf.math.is_finite(parsed[name])
        if not replaced.isdisjoint(columns):
            finite |= tf.math.is_nan(parsed[name]) & [column in replaced for column in columns]
        of_columns.append(tf.reduce_all(finite, list(range(finite.shape.rank - 1))))
    names = list(itertools.chain(*stored.values()))
    finite = tf.concat(of_columns, axis=0)
    culprit = tf.gather(names, tf.argmin(tf.cast(finite, tf.int32)))
    message = [f"{GRAPH_ERROR}{where}: column ", culprit, " holds a NaN or infinite value"]
    tf.debugging.Assert(tf.reduce_all(finite), [tf.strings.join(message)])
    return parsed


@dataclass(eq=False)
class ElwcDatasetBuilder(tfr.keras.pipeline.AbstractDatasetBuilder):
    """Builds `tf.data` data sets from the splits of a data-set folder.

    Lists are batched before they are parsed, which is twice as fast as parsing first. Training data
    is shuffled over files and within a buffer of lists, differently in each epoch; over the whole
    split where the data set has it parsed (`cached`).

    Args:
        folder: the data set.
        batch_size: lists per batch.
        list_size: items per list in training, longer lists are truncated; None keeps all items and
            pads to the longest list of the batch. Validation and evaluation always keep all.
        shuffle_buffer_size: lists in the shuffle buffer.
        repeat: whether the training data repeats indefinitely, for a fixed number of steps per
            epoch.
        seed: random seed of the shuffle.
        tasks: labels that are returned as a dict by name, for multi-task models; by default the
            primary label is returned.
        with_position: whether the features of training and validation batches have the position
            [B, L, 1].

    Example:
        builder = ElwcDatasetBuilder(DataFolder("data"), batch_size=128)
        features, labels = next(iter(builder.build_train_dataset()))
    """

    folder: DataFolder
    batch_size: int = 128
    list_size: int | None = None
    shuffle_buffer_size: int = 10_000
    repeat: bool = False
    seed: int | None = None
    tasks: Sequence[str] = ()
    with_position: bool = False

    def __post_init__(self) -> None:
        """Checks the size of the batches."""
        if self.batch_size < 1:
            raise UserError(f"batch_size must be >= 1. Received: {self.batch_size}")

    @property
    def schema(self) -> FeatureSchema:
        """The schema of the data set."""
        return self.folder.schema

    def build_train_dataset(self) -> tf.data.Dataset:
        """Batches (features, labels [B, L], weights if any); with `tasks` a dict of labels."""
        dataset = self._read("train", self._features_and_labels, training=True)
        return dataset if self.repeat else self._counted(dataset, "train")

    def build_valid_dataset(self) -> tf.data.Dataset:
        """The same for the validation split, whole lists in file order."""
        return self._counted(self._read("validation", self._features_and_labels), "validation")

    def build_evaluation_dataset(self, split: str) -> tf.data.Dataset:
        """Batches (features, labels [B, L], extras) in file order.

        `extras` has the list ID [B, 1], and position and weight [B, L, 1] if the schema has them.
        """
        return self._read(split, self._split)

    def build_parsed_dataset(self, split: str) -> tf.data.Dataset:
        """Batches of all columns of the records by name, with the mask, in file order."""
        return self._read(split, dict)

    def build_signatures(self, model: tf.keras.Model) -> Any:
        """TFR's signatures, with `predict` on ExampleListWithContext as default."""
        signatures = tfr.keras.saved_model.Signatures(
            model,
            context_feature_spec=self.schema.feature_spec("context"),
            example_feature_spec=self.schema.feature_spec("example"),
            mask_feature_name=MASK,
        )(serving_default="predict")
        # TFR makes `predict` twice; the same function under both names is traced once.
        default = signatures[tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY]
        return {**signatures, tf.saved_model.PREDICT_METHOD_NAME: default}

    def serialized_lists(self, split: str) -> tf.data.Dataset:
        """The records of a split as serialized protos, in file order."""
        dataset = tf.data.TFRecordDataset(self.folder.files(split), compression_type="GZIP")
        return dataset.with_options(_untuned())

    def _counted(self, dataset: tf.data.Dataset, split: str) -> tf.data.Dataset:
        # Keras runs several steps per call only if it knows the number of batches.
        num_lists = self.folder.num_lists(split)
        if not num_lists:
            return dataset
        batches = -(-num_lists // self.batch_size)
        return dataset.apply(tf.data.experimental.assert_cardinality(batches))

    @tf.autograph.experimental.do_not_convert
    def _read(self, split: str, then: Finish, training: bool = False) -> tf.data.Dataset:
        """Batches of all columns after `then`, which is traced with the function that reads.

        Only for `training` lists are truncated, shuffled and repeated.
        """
        if split in self.folder.splits:
            return self._read_parsed(self.folder.splits[split], then, training)
        endless = training and self.repeat
        dataset = tfr.data.build_ranking_dataset_with_parsing_fn(
            [glob.escape(file) for file in self.folder.files(split)],
            _parser(
                self.schema,
                # The last batch of a data set that ends may be a smaller one.
                self.batch_size if endless else None,
                self.list_size if training else None,
            ),
            self.batch_size,
            reader=tf.data.TFRecordDataset,
            reader_args=["GZIP"],
            shuffle=training,
            shuffle_buffer_size=self.shuffle_buffer_size,
            shuffle_seed=self.seed,
            num_epochs=None if endless else 1,
        )
        where = f"data {self.folder.path}: split {split}"
        check = functools.partial(check_finite, schema=self.schema, where=where)
        batches = dataset.map(lambda batch: then(check(batch)), num_parallel_calls=tf.data.AUTOTUNE)
        return batches.with_options(_untuned())

    def _read_parsed(self, parsed: ParsedSplit, then: Finish, training: bool) -> tf.data.Dataset:
        """The same from a parsed split, whose lists are shuffled over the whole split."""
        count = int(parsed.row_splits.shape[0]) - 1
        numbers = tf.data.Dataset.range(count)
        if training:
            numbers = numbers.shuffle(count, seed=self.seed, reshuffle_each_iteration=True)
            numbers = numbers.repeat() if self.repeat else numbers
        list_size = self.list_size if training else None
        gather = functools.partial(_gather, self.schema, parsed, list_size)
        batches = numbers.batch(self.batch_size).map(
            lambda lists: then(gather(lists)), num_parallel_calls=tf.data.AUTOTUNE
        )
        # Its stages are parallel already; a rewrite costs each of many short trials time again.
        options = _untuned()
        options.experimental_optimization.apply_default_optimizations = False
        return batches.prefetch(tf.data.AUTOTUNE).with_options(options)

    def _split(self, parsed: dict[str, Any]) -> tuple[dict[str, Any], Any, dict[str, Any]]:
        schema = self.schema
        extras = {c: parsed.pop(c) for c in schema.role_columns() if c not in schema.labels}
        labels = {c: tf.squeeze(parsed.pop(c), axis=-1) for c in schema.labels}
        selected = {c: labels[c] for c in self.tasks} or labels[schema.label]
        return parsed, selected, extras

    def _features_and_labels(self, parsed: dict[str, Any]) -> tuple[Any, ...]:
        features, labels, extras = self._split(parsed)
        if self.with_position and self.schema.position:
            features[self.schema.position] = extras[self.schema.position]
        if self.schema.weight is None:
            return features, labels
        return features, labels, tf.squeeze(extras[self.schema.weight], axis=-1)


@functools.lru_cache(maxsize=16)
def _parser(
    schema: FeatureSchema, batch_size: int | None, list_size: int | None
) -> Callable[..., dict[str, tf.Tensor]]:
    """TFR's function from serialized lists [B] to columns, one graph for data sets of a schema."""
    context, example = column_specs(schema)
    parse = tfr.data.make_parsing_fn(
        tfr.data.ELWC, list_size, context, example, mask_feature_name=MASK
    )
    return tf.function(parse, [tf.TensorSpec([batch_size], tf.string)], autograph=False)


def _untuned() -> tf.data.Options:
    """Options without the thread that tunes a data set while it is read.

    The thread can miss that its iterator is gone; the end of an epoch then waits for it, up to a
    minute.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return options


def _gather(
    schema: FeatureSchema, parsed: ParsedSplit, list_size: int | None, lists: tf.Tensor
) -> dict[str, tf.Tensor]:
    """The lists with the given indices, padded to the longest or to `list_size`."""
    _, example = column_specs(schema)
    starts = tf.gather(parsed.row_splits, lists)
    lengths = tf.gather(parsed.row_splits, lists + 1) - starts
    width = tf.reduce_max(lengths) if list_size is None else tf.constant(list_size, tf.int64)
    position = tf.range(width)
    mask = position < tf.expand_dims(lengths, axis=1)
    rows = tf.where(mask, tf.expand_dims(starts, axis=1) + position, 0)
    batch = {name: _rows(values, lists) for name, values in parsed.context.items()}
    for name, values in parsed.example.items():
        spec = example[name]
        padding = tf.constant(spec.default_value, spec.dtype)
        batch[name] = tf.where(tf.expand_dims(mask, axis=2), _rows(values, rows), padding)
    batch[MASK] = mask
    return batch


def _rows(values: Any, rows: tf.Tensor) -> tf.Tensor:
    """Rows of a column that is a tensor or a dictionary."""
    if isinstance(values, Dictionary):
        return tf.gather(values.words, tf.gather(values.codes, rows))
    return tf.gather(values, rows)


def cached(folder: DataFolder, kind: Literal["auto", "none", "memory"]) -> DataFolder:
    """The data set with parsed splits for training; unchanged for `none`, or if it has some.

    `auto` is `memory` for splits that take up to 256 MB, by the numbers of lists and items in the
    manifest, and else `none`.
    """
    if folder.splits or kind == "none":
        return folder
    if kind == "auto" and parsed_bytes(folder) > AUTO_CACHE_BYTES:
        return folder
    return folder.with_splits(
        {split: in_memory(_parse(folder, split)) for split in TRAINING_SPLITS}
    )


def parsed_bytes(folder: DataFolder) -> float:
    """About the memory that the splits of `cached` take; infinity if the manifest has no counts."""
    context, example = (
        sum(
            spec.shape[0] * (_ID_BYTES if spec.dtype == tf.string else 4) for spec in specs.values()
        )
        for specs in column_specs(folder.schema)
    )
    total = 0
    for split in TRAINING_SPLITS:
        lists, items = folder.num_lists(split), folder.num_items(split)
        if lists is None or items is None:
            return math.inf
        total += lists * context + items * example
    return total


def in_memory(split: ParsedSplit) -> ParsedSplit:
    """Converts the arrays of a split to tensors in memory."""
    with tf.device("CPU"):
        return tf.nest.map_structure(lambda array: tf.constant(np.asarray(array)), split)


def _parse(folder: DataFolder, split: str) -> ParsedSplit:
    """Parses a split; a UserError if it has no lists."""
    folder.check_lists(split)
    batches = ElwcDatasetBuilder(folder, _PARSED_BATCH).build_parsed_dataset(split)
    return collected(batches, *column_specs(folder.schema))


def collected(
    batches: tf.data.Dataset, context: Collection[str], example: Collection[str]
) -> ParsedSplit:
    """Columns of one or more batches of `build_parsed_dataset`, without the padding."""
    parts: dict[str, list[np.ndarray]] = defaultdict(list)
    for batch in batches.as_numpy_iterator():
        mask = batch[MASK]
        parts[MASK].append(mask.sum(axis=1))
        for name in context:
            parts[name].append(batch[name])
        for name in example:
            parts[name].append(batch[name][mask])
    columns = {name: np.concatenate(values) for name, values in parts.items()}
    return ParsedSplit(
        {name: columns[name] for name in context},
        {name: columns[name] for name in example},
        np.concatenate([[0], np.cumsum(columns[MASK])]).astype(np.int64),
    )
