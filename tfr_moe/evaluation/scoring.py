"""Scores the lists of a data set with a model and yields them as NumPy batches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.baselines import BaselineRun
from tfr_moe.metrics.per_list import Array, ListBatch
from tfr_moe.schema import MASK, PAIR_SEPARATOR, FeatureSchema
from tfr_moe.scorers.base import inference_function
from tfr_moe.scorers.gate_maps import strings
from tfr_moe.scorers.multitask import SCORES
from tfr_moe.training import LoadedRun


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
    infer = inference_function(model, schema) if isinstance(model, tf.keras.Model) else model
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


def of_task(run: LoadedRun | BaselineRun, task: str) -> Callable[..., Any]:
    """The scores of a run for a task; those of a run without tasks are of any label."""
    if task not in run.task_names:
        return run.score
    return lambda features: run.score(features)[f"{SCORES}_{task}"]


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
