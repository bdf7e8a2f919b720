"""The signatures of an exported model, as one `tf.Module` without Keras in it.

    predict  serialized ELWC [B] -> scores [B, L]; scores_<task> [B, L] of a model of several tasks
    regress  serialized tf.Example [B], an item with its context each -> outputs [B]
    rank     serialized ELWC [B] -> order, scores [B, L], valid [B], scores_<task>, expert_ids,
             expert_weights, with _<task> where each task has experts of its own
    tensors  a tensor for each feature and list_size [B] -> what predict gives
    schema   any strings [B] -> schema [B], the FeatureSchema as JSON, from which clients encode requests

L is the length of the longest list in the batch, 0 for an empty batch; in a model of a fixed list size it
is that. Every signature but `tensors` has one input, `inputs`, as those of TensorFlow Ranking have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from tfr_moe._compat import tf
from tfr_moe.schema import MASK, FeatureSchema

from .dense import LIST_SIZE, TensorParser
from .gaps import Features
from .parsing import RequestParser
from .ranked import SCORES, Batch, ranked
from .sizes import hold_to

INPUT = tf.saved_model.PREDICT_INPUTS
PREDICT = tf.saved_model.PREDICT_METHOD_NAME
REGRESS = tf.saved_model.REGRESS_METHOD_NAME
DEFAULT = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
RANK = "rank"
TENSORS = "tensors"
SCHEMA = "schema"

Tensors = dict[str, tf.Tensor]


def scores_by_name(outputs: tf.Tensor | Tensors) -> Tensors:
    """What a model returns as a dict: its one score, or the combined one and those of the tasks."""
    return dict(outputs) if isinstance(outputs, dict) else {SCORES: outputs}


def explained_by_name(outputs: Tensors) -> Tensors:
    """What an explanation returns, its one score under the name that signatures give it."""
    named = dict(outputs)
    if "logits" in named:
        named[SCORES] = named.pop("logits")
    return named


class ServingModule(NamedTuple):
    """What `tf.saved_model.save` takes: the module and its signatures."""

    module: tf.Module
    signatures: dict[str, Any]


def build(
    model: tf.keras.Model,
    schema: FeatureSchema,
    explanation: tf.keras.Model | None = None,
    list_size: int | None = None,
    check: Callable[[Features], Features] | None = None,
    tracing: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> ServingModule:
    """Wraps a Keras ranking model in the serving signatures.

    The module holds the variables and lookup tables that the signatures use, not the Keras model:
    saved with it, its layers would bring their training graphs along (noise, dropout, penalties).

    Args:
        model: maps the features of `schema` (raw values) and the mask to logits [B, L], or to a
            dict with `scores`, which is what is ranked by, and `scores_<task>`.
        schema: describes the requests.
        explanation: a model with the same inputs and the model's scores (a single one as `logits`),
            `expert_ids` and `expert_weights` ([B, K], or [B, L, K] for item-level gates), the latter
            two possibly per task with `_<task>` after their name; `rank` then tells the experts too.
        list_size: every list is filled up to this size and a longer one refused; None for any size.
        check: looks at the parsed features and returns them, or fails when it runs.
        tracing: makes a context within which all signatures are traced.
    """
    parser, dense, text = RequestParser(schema), TensorParser(schema), schema.to_json()
    of_items = (MASK, *schema.feature_spec("example"))

    def prepared(features: Features) -> Features:
        checked = features if check is None else check(features)
        return checked if list_size is None else hold_to(checked, of_items, list_size)

    def scored(features: Features, size: tf.Tensor, places: tf.Tensor | None = None) -> Tensors:
        features = prepared(features)
        batch = Batch(size, features[MASK], places, list_size)
        found = scores_by_name(model(features, training=False))
        return {name: batch.cut(batch.masked(logits)) for name, logits in found.items()}

    def predict(inputs: tf.Tensor) -> Tensors:
        return scored(parser.lists(inputs), tf.shape(inputs)[0])

    def tensors(**inputs: tf.Tensor) -> Tensors:
        size = tf.shape(inputs[LIST_SIZE])[0]
        return scored(dense.lists(inputs), size, dense.places(inputs))

    def regress(inputs: tf.Tensor) -> Tensors:
        features = parser.items(inputs)
        features = features if check is None else check(features)
        logits = scores_by_name(model(features, training=False))[SCORES]
        return {tf.saved_model.REGRESS_OUTPUTS: logits[: tf.shape(inputs)[0], 0]}

    def rank(inputs: tf.Tensor) -> Tensors:
        features = prepared(parser.lists(inputs))
        if explanation is None:
            outputs = scores_by_name(model(features, training=False))
        else:
            outputs = explained_by_name(explanation(features, training=False))
        return ranked(outputs, Batch(tf.shape(inputs)[0], features[MASK], None, list_size))

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
    with tracing():
        signatures = {name: f.get_concrete_function() for name, f in traced.items()}
        signatures[TENSORS] = tf.function(tensors).get_concrete_function(**dense.inputs())
    module = tf.Module(name="serving")
    module.used_variables = _used_variables(signatures.values())
    module.used_resources = _resources(m for m in (model, explanation) if m is not None)
    if check is not None:
        module.check = check
    return ServingModule(module, {DEFAULT: signatures[PREDICT], **signatures})


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
