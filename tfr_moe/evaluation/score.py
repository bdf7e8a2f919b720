"""Runs a model over a data set and yields the scored lists as numpy batches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.evaluation.batches import Array, ListBatch
from tfr_moe.schema import MASK, FeatureSchema


def strings(tensor: Any) -> Array:
    """[B, 1] string tensor -> [B] array of str."""
    values = np.asarray(tensor).reshape(-1)
    return np.array([value.decode("utf-8", errors="replace") for value in values], dtype=object)


def _shared(names: Array) -> Array:
    """The same names, each distinct one in memory once, however many batches hold it."""
    return np.array([sys.intern(name) for name in names], dtype=object)


def _check_extras(extras: Any, schema: FeatureSchema) -> None:
    for name in (schema.list_id, schema.position):
        if name and name not in extras:
            there = ", ".join(map(str, extras)) or "nothing"
            raise UserError(f"extras have no {name!r}, which the schema names; there is: {there}")


def score_dataset(
    model: Callable[..., Any], dataset: tf.data.Dataset, schema: FeatureSchema
) -> Iterator[ListBatch]:
    """Scores every list of a data set once, in inference mode, batch by batch.

    The graph is traced once, for the data set's own element shapes, so batches of varying list
    length cost no new trace.

    Args:
        model: takes the features as a dict and returns logits [B, L]: a Keras model, or any function.
        dataset: of elements `(features, labels, extras)`: `features` with the mask
            `example_list_mask` [B, L] and, where the schema has a hierarchy, the parent category
            [B, 1]; `labels` [B, L]; `extras` with the list id [B, 1] and, where the schema has one,
            the position [B, L, 1] or [B, L].
        schema: names the list id, the position and the hierarchy.

    Yields:
        One `ListBatch` for each element, scores in the model's own precision.

    Raises:
        UserError: where the extras lack the list id or the position that the schema names.
    """
    for features, labels, extras, scores in _scored(model, dataset, schema):
        yield _batch(features, labels, extras, scores, schema)


def score_tasks(
    model: Callable[..., Any],
    dataset: tf.data.Dataset,
    schema: FeatureSchema,
    outputs: Mapping[str, str | None],
) -> Iterator[dict[str, ListBatch]]:
    """The same for several labels at once: each list is scored once, and judged by each label.

    Args:
        model: takes the features as a dict and returns logits [B, L] or a dict of them.
        dataset: as for `score_dataset`, with the labels as a dict of [B, L].
        schema: see `score_dataset`.
        outputs: per label the output of the model that is judged by it; None for a model with one.

    Yields:
        Per element of the data set a `ListBatch` for each label.
    """
    for features, labels, extras, scores in _scored(model, dataset, schema):
        yield {
            task: _batch(
                features, labels[task], extras, scores if name is None else scores[name], schema
            )
            for task, name in outputs.items()
        }


def compiled(model: Callable[..., Any], features_spec: Any) -> Callable[..., Any]:
    """A Keras model as a graph in inference mode, traced once; any other function as it is."""
    if not isinstance(model, tf.keras.Model):
        return model
    graph = tf.function(
        lambda features: model(features, training=False), input_signature=[features_spec]
    )
    # A concrete function: TensorFlow warns of functions that are made again and again, one a run.
    return graph.get_concrete_function()


def _scored(
    model: Callable[..., Any], dataset: tf.data.Dataset, schema: FeatureSchema
) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Elements of the data set, each with what the model returns."""
    features_spec, _, extras_spec = dataset.element_spec
    _check_extras(extras_spec, schema)

    infer = compiled(model, features_spec)

    for features, labels, extras in dataset:
        yield features, labels, extras, infer(features)


def _batch(
    features: Any, labels: Any, extras: Any, scores: Any, schema: FeatureSchema
) -> ListBatch:
    parent = schema.hierarchy.parent if schema.hierarchy else None
    shape = tuple(scores.shape)
    return ListBatch(
        scores=scores.numpy(),
        labels=labels.numpy(),
        mask=features[MASK].numpy(),
        list_ids=strings(extras[schema.list_id]),
        positions=extras[schema.position].numpy().reshape(shape) if schema.position else None,
        categories=_shared(strings(features[parent])) if parent else None,
    )
