"""Scores the lists of a data set with a model and yields them as NumPy batches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.metrics.per_list import Array, ListBatch
from tfr_moe.schema import MASK, PAIR_SEPARATOR, FeatureSchema
from tfr_moe.scorers.gate_maps import strings
from tfr_moe.scorers.multitask import SCORES


def score_dataset(
    model: Callable[..., Any], dataset: tf.data.Dataset, schema: FeatureSchema
) -> Iterator[ListBatch]:
    """Scores every list of a data set once, in inference mode, batch by batch.

    Args:
        model: a Keras model or function from a dict of features to logits [B, L].
        dataset: of elements `(features, labels, extras)`: `features` with the mask
            `example_list_mask` [B, L] and, where the schema has a hierarchy, its two categories
            [B, 1]; `labels` [B, L]; `extras` with the list id [B, 1] and, where the schema has one,
            the position and the weight [B, L, 1] or [B, L].
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
    infer = inference_function(model, dataset.element_spec[0])
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


def of_task(scorer: Callable[..., Any], task: str) -> Callable[..., Any]:
    """The scores of one task of a scorer of several; "" for a scorer with one output."""
    return (lambda features: scorer(features)[f"{SCORES}_{task}"]) if task else scorer


def list_batch(
    features: Any, labels: Any, extras: Any, scores: Any, schema: FeatureSchema
) -> ListBatch:
    """Tensors of an element, see `score_dataset`, with their scores [B, L], as NumPy arrays."""
    tops = subs = None
    if tree := schema.hierarchy:
        tops = _interned(strings(features[tree.parent]))
        subs = _interned(tops + PAIR_SEPARATOR + strings(features[tree.child]))
    shape = tuple(scores.shape)
    return ListBatch(
        scores=scores.numpy(),
        labels=labels.numpy(),
        mask=features[MASK].numpy(),
        list_ids=strings(extras[schema.list_id]),
        positions=extras[schema.position].numpy().reshape(shape) if schema.position else None,
        categories=tops,
        sub_categories=subs,
        weights=extras[schema.weight].numpy().reshape(shape) if schema.weight else None,
    )


def _interned(names: Array) -> Array:
    """The same strings, each distinct one in memory once."""
    return np.array([sys.intern(name) for name in names], object)
