"""The signatures of an exported model, as one `tf.Module` without Keras in it.

    predict  serialized ELWC [B] -> scores [B, L]; scores_<task> [B, L] of a model of several tasks
    regress  serialized tf.Example [B], an item with its context each -> outputs [B]
    rank     serialized ELWC [B] -> order, scores [B, L], valid [B], scores_<task>, expert_ids,
             expert_weights
    schema   any strings [B] -> schema [B], the FeatureSchema as JSON, from which clients encode requests

L is the length of the longest list in the batch, 0 for an empty batch. Every signature has one
input, `inputs`, as those of TensorFlow Ranking have.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from tfr_moe._compat import tf
from tfr_moe.schema import MASK, FeatureSchema

from .parsing import RequestParser

INPUT = tf.saved_model.PREDICT_INPUTS
PREDICT = tf.saved_model.PREDICT_METHOD_NAME
REGRESS = tf.saved_model.REGRESS_METHOD_NAME
DEFAULT = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
RANK = "rank"
SCORES = "scores"
SCHEMA = "schema"

LOWEST = tf.float32.min
"""The score of padded places: no real item scores below it."""

Tensors = dict[str, tf.Tensor]


def scores_by_name(outputs: tf.Tensor | Tensors) -> Tensors:
    """What a model returns as a dict: its one score, or the combined one and those of the tasks."""
    return dict(outputs) if isinstance(outputs, dict) else {SCORES: outputs}


class ServingModule(NamedTuple):
    """What `tf.saved_model.save` takes: the module and its signatures."""

    module: tf.Module
    signatures: dict[str, Any]


def build(
    model: tf.keras.Model, schema: FeatureSchema, explanation: tf.keras.Model | None = None
) -> ServingModule:
    """Wraps a Keras ranking model in the serving signatures.

    The module holds the variables and lookup tables that the signatures use, not the Keras model:
    saved with it, its layers would bring their training graphs along (noise, dropout, penalties).

    Args:
        model: maps the features of `schema` (raw values) and the mask to logits [B, L], or to a
            dict with `scores`, which is what is ranked by, and `scores_<task>`.
        schema: describes the requests.
        explanation: a model with the same inputs and the outputs `logits`, `expert_ids` and
            `expert_weights` ([B, K], or [B, L, K] for item-level gates); `rank` then answers with
            the experts too.
    """
    parser, text = RequestParser(schema), schema.to_json()

    def predict(inputs: tf.Tensor) -> Tensors:
        features = parser.lists(inputs)
        batch = _Batch(inputs, features[MASK])
        found = scores_by_name(model(features, training=False))
        return {name: batch.cut(batch.masked(logits)) for name, logits in found.items()}

    def regress(inputs: tf.Tensor) -> Tensors:
        logits = scores_by_name(model(parser.items(inputs), training=False))[SCORES]
        return {tf.saved_model.REGRESS_OUTPUTS: logits[: tf.shape(inputs)[0], 0]}

    def rank(inputs: tf.Tensor) -> Tensors:
        features = parser.lists(inputs)
        if explanation is None:
            outputs = scores_by_name(model(features, training=False))
        else:
            outputs = explanation(features, training=False)
            outputs[SCORES] = outputs.pop("logits")
        return _ranked(outputs, _Batch(inputs, features[MASK]))

    def describe(inputs: tf.Tensor) -> Tensors:
        # One answer a request, so that a server may batch this signature as it does the others.
        return {SCHEMA: tf.fill(tf.shape(inputs), tf.constant(text))}

    traced = {
        name: tf.function(function, input_signature=[tf.TensorSpec([None], tf.string, INPUT)])
        for name, function in (
            (PREDICT, predict),
            (REGRESS, regress),
            (RANK, rank),
            (SCHEMA, describe),
        )
    }
    signatures = {name: function.get_concrete_function() for name, function in traced.items()}
    module = tf.Module(name="serving")
    module.used_variables = _used_variables(signatures.values())
    module.used_resources = _resources(m for m in (model, explanation) if m is not None)
    return ServingModule(module, {DEFAULT: signatures[PREDICT], **signatures})


class _Batch:
    """The true size of a batch that the parser filled up to at least one list of one item."""

    def __init__(self, inputs: tf.Tensor, mask: tf.Tensor):
        self.mask = mask
        self.valid = tf.reduce_sum(tf.cast(mask, tf.int32), axis=1)
        self._size = tf.shape(inputs)[0]
        self._widest = tf.reduce_max(self.valid)

    def masked(self, logits: tf.Tensor) -> tf.Tensor:
        return tf.where(self.mask, tf.maximum(tf.cast(logits, tf.float32), LOWEST), LOWEST)

    def cut(self, value: tf.Tensor, listwise: bool = True) -> tf.Tensor:
        return value[: self._size, : self._widest] if listwise else value[: self._size]


def _ranked(outputs: Tensors, batch: _Batch) -> Tensors:
    """Sorts by score, best first; ties keep the order of the request."""
    scores = batch.masked(outputs[SCORES])
    best_first = tf.argsort(scores, axis=1, direction="DESCENDING", stable=True)
    # Padding comes after the items of a list, so among equal scores it stays behind them.
    places = tf.sequence_mask(batch.valid, tf.shape(batch.mask)[1])
    ranked = {
        "order": batch.cut(tf.where(places, best_first, -1)),
        "scores": batch.cut(tf.gather(scores, best_first, batch_dims=1)),
        "valid": batch.cut(batch.valid, listwise=False),
    }
    for name in outputs:
        if name.startswith(f"{SCORES}_"):
            sorted_alike = tf.gather(batch.masked(outputs[name]), best_first, batch_dims=1)
            ranked[name] = batch.cut(sorted_alike)
    for name, padding in (("expert_ids", -1), ("expert_weights", 0.0)):
        if name not in outputs:
            continue
        value = outputs[name]
        item_level = value.shape.rank == 3
        if item_level:
            value = tf.gather(value, best_first, batch_dims=1)
            value = tf.where(places[..., tf.newaxis], value, tf.cast(padding, value.dtype))
        ranked[name] = batch.cut(value, item_level)
    return ranked


def _used_variables(functions: Iterable[Any]) -> list[tf.Variable]:
    found = {id(v): v for function in functions for v in function.variables}
    return list(found.values())


def _resources(
    models: Iterable[tf.keras.Model],
) -> list[tf.saved_model.experimental.TrackableResource]:
    kind = tf.saved_model.experimental.TrackableResource
    found = {
        id(node): node
        for model in models
        for node in tf.train.TrackableView(model).descendants()
        if isinstance(node, kind)
    }
    return list(found.values())
