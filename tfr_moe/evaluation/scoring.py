"""Scores the lists of a data set with a model and yields them as NumPy batches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.metrics.per_list import ListBatch
from tfr_moe.schema import MASK, FeatureSchema
from tfr_moe.scorers.gate_maps import strings


def score_dataset(
    model: Callable[..., Any], dataset: tf.data.Dataset, schema: FeatureSchema
) -> Iterator[ListBatch]:
    """Scores every list of a data set once, in inference mode, batch by batch.

    The graph is traced once for the element shapes of the data set, not again for each list length.

    Args:
        model: a Keras model or function from a dict of features to logits [B, L].
        dataset: of elements `(features, labels, extras)`: `features` with the mask
            `example_list_mask` [B, L] and, where the schema has a hierarchy, the parent category
            [B, 1]; `labels` [B, L]; `extras` with the list id [B, 1] and, where the schema has one,
            the position and the weight [B, L, 1] or [B, L].

    Raises:
        UserError: if the extras have no list ID, position or weight of the schema.
    """
    return (by_task[""] for by_task in score_tasks(model, dataset, schema, {"": None}))


def score_tasks(
    model: Callable[..., Any],
    dataset: tf.data.Dataset,
    schema: FeatureSchema,
    outputs: Mapping[str, str | None],
) -> Iterator[dict[str, ListBatch]]:
    """Scores every list of a data set once, for several labels; see `score_dataset`.

    Labels are a dict of [B, L], the model may return a dict. `outputs` has the name of the model's
    output for each label, None for a model with one output; "" is a label that is no dict.
    """
    features_spec, _, extras_spec = dataset.element_spec
    for name in (schema.list_id, schema.position, schema.weight):
        if name and name not in extras_spec:
            present = ", ".join(map(str, extras_spec)) or "nothing"
            raise UserError(f"extras have no {name!r} of the schema. Received: {present}")
    infer = inference_function(model, features_spec)
    for features, labels, extras in dataset:
        scores = infer(features)
        yield {
            task: list_batch(
                features,
                labels[task] if task else labels,
                extras,
                scores if name is None else scores[name],
                schema,
            )
            for task, name in outputs.items()
        }


def input_specs(schema: FeatureSchema) -> dict[str, tf.TensorSpec]:
    """Specs of the inputs of a model, for any number of lists and items."""
    specs = {MASK: tf.TensorSpec([None, None], tf.bool)}
    for name, spec in schema.feature_spec("context").items():
        specs[name] = tf.TensorSpec([None, *spec.shape], spec.dtype)
    for name, spec in schema.feature_spec("example").items():
        specs[name] = tf.TensorSpec([None, None, *spec.shape], spec.dtype)
    return specs


def inference_function(
    model: Callable[..., Any], features_spec: Mapping[str, tf.TensorSpec]
) -> Callable[..., Any]:
    """Traces a Keras model as a graph in inference mode; returns any other function unchanged.

    The graph takes the features of `features_spec` from a dict that may have others too.
    """
    if not isinstance(model, tf.keras.Model):
        return model
    graph = tf.function(
        lambda features: model(features, training=False),
        input_signature=[features_spec],
        autograph=False,
    )
    # A concrete function: TensorFlow warns about `tf.function` objects created in a loop.
    traced = graph.get_concrete_function()
    return lambda features: traced({name: features[name] for name in features_spec})


def list_batch(
    features: Any, labels: Any, extras: Any, scores: Any, schema: FeatureSchema
) -> ListBatch:
    """Tensors of an element, see `score_dataset`, with their scores [B, L], as NumPy arrays."""
    parent = schema.hierarchy.parent if schema.hierarchy else None
    shape = tuple(scores.shape)
    return ListBatch(
        scores=scores.numpy(),
        labels=labels.numpy(),
        mask=features[MASK].numpy(),
        list_ids=strings(extras[schema.list_id]),
        positions=extras[schema.position].numpy().reshape(shape) if schema.position else None,
        # Interned, so that each distinct name is in memory once.
        categories=np.array([sys.intern(name) for name in strings(features[parent])], object)
        if parent
        else None,
        weights=extras[schema.weight].numpy().reshape(shape) if schema.weight else None,
    )
