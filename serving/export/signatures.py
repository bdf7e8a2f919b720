"""The signatures of an exported model, as one `tf.Module` without Keras.

    predict  serialized ELWC [B] -> scores [B, L]; with several tasks also scores_<task> [B, L]
    rank     serialized ELWC [B] -> order, scores [B, L], valid [B], scores_<task>, expert_ids,
             expert_weights, with _<task> where each task has its own experts
    schema   any strings [B] -> schema [B], the FeatureSchema as JSON, from which clients encode

L is the length of the longest list in the batch, 0 for an empty batch. Every signature has one
input, `inputs`, as those of TensorFlow Ranking have.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.schema import MASK, FeatureSchema, QueryCategories

from .parsing import RequestParser

INPUT = tf.saved_model.PREDICT_INPUTS
PREDICT = tf.saved_model.PREDICT_METHOD_NAME
DEFAULT = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
RANK = "rank"
SCHEMA = "schema"

SCORES = "scores"
EXPERT_IDS = "expert_ids"
EXPERT_WEIGHTS = "expert_weights"
LOWEST = tf.float32.min
"""The score of padding; no real item scores below it."""

Tensors = dict[str, tf.Tensor]


def outputs_by_name(outputs: tf.Tensor | Tensors) -> Tensors:
    """The outputs of a model or an explanation, with a single score under the name `scores`."""
    if not isinstance(outputs, dict):
        return {SCORES: outputs}
    return {SCORES if name == "logits" else name: value for name, value in outputs.items()}


def names_experts(output: str) -> bool:
    """Whether an output holds experts or their weights."""
    return output.startswith((EXPERT_IDS, EXPERT_WEIGHTS))


def build(
    model: tf.keras.Model,
    schema: FeatureSchema,
    explanation: tf.keras.Model | None = None,
    categories: QueryCategories | None = None,
) -> tuple[tf.Module, dict[str, Any]]:
    """Wraps a Keras ranking model in a module with the serving signatures, which are returned too.

    Args:
        model: maps raw features and the mask to logits [B, L], or to a dict with `scores`, which
            items are ranked by, and `scores_<task>`.
        explanation: a model with the same inputs and scores that also returns `expert_ids` and
            `expert_weights` ([B, K], or [B, L, K] for item-level gates), heaviest first, with
            `_<task>` after their names where each task has its own; `rank` then returns them too.
        categories: of the queries, where the schema needs them.
    """
    parser, text = RequestParser(schema, categories), schema.to_json()
    spec = [tf.TensorSpec([None], tf.string, INPUT)]

    # One graph for both signatures: the model is traced, written and loaded once.
    @tf.function(input_signature=spec, autograph=False)
    def scored(inputs: tf.Tensor) -> tuple[Tensors, tf.Tensor]:
        features = parser.lists(inputs)
        outputs = (explanation or model)(features, training=False)
        return outputs_by_name(outputs), features[MASK]

    def predict(inputs: tf.Tensor) -> Tensors:
        outputs, mask = scored(inputs)
        batch = _Batch(tf.shape(inputs)[0], mask)
        return {
            name: batch.cut(batch.masked(logits))
            for name, logits in outputs.items()
            if not names_experts(name)
        }

    def rank(inputs: tf.Tensor) -> Tensors:
        outputs, mask = scored(inputs)
        return _ranked(outputs, _Batch(tf.shape(inputs)[0], mask))

    def describe(inputs: tf.Tensor) -> Tensors:
        # One answer per request, so that a server may batch this signature as it does the others.
        return {SCHEMA: tf.fill(tf.shape(inputs), tf.constant(text))}

    functions = {PREDICT: predict, RANK: rank, SCHEMA: describe}
    signatures = {
        name: tf.function(function, input_signature=spec, autograph=False).get_concrete_function()
        for name, function in functions.items()
    }
    models = [m for m in (model, explanation) if m is not None]
    module = module_of(signatures.values(), models, parser)
    return module, {DEFAULT: signatures[PREDICT], **signatures}


def lists_function(
    model: tf.keras.Model, parser: RequestParser, vectors: bool = False
) -> tf.types.experimental.GenericFunction:
    """The function from serialized lists [B] to the scores of a model by name, or `vectors`."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, INPUT)], autograph=False)
    def outputs(inputs: tf.Tensor) -> Tensors:
        answer = model(parser.lists(inputs), training=False)
        return {"vectors": answer} if vectors else outputs_by_name(answer)

    return outputs


def module_of(
    signatures: Iterable[Any], models: Iterable[tf.keras.Model], parser: RequestParser
) -> tf.Module:
    """A module with the variables of concrete functions, and the lookup tables that they use.

    The Keras models are not in it: their layers would bring their training graphs along (noise,
    dropout, penalties).
    """
    kind = tf.saved_model.experimental.TrackableResource
    nodes = [node for model in models for node in tf.train.TrackableView(model).descendants()]
    module = tf.Module(name="serving")
    module.used_variables = list({id(v): v for s in signatures for v in s.variables}.values())
    resources = list({id(n): n for n in nodes if isinstance(n, kind)}.values())
    module.used_resources = resources + parser.categories.resources
    return module


class _Batch:
    """Restores the size of a batch of `size` lists that was padded to `mask` for the model."""

    def __init__(self, size: tf.Tensor, mask: tf.Tensor):
        self.mask = mask
        self.valid = tf.reduce_sum(tf.cast(mask, tf.int32), axis=1)
        self._size = size
        self._width = tf.reduce_max(self.valid)

    def masked(self, logits: tf.Tensor) -> tf.Tensor:
        """Logits [B, L] as float32, with the lowest one at padding."""
        return tf.where(self.mask, tf.maximum(tf.cast(logits, tf.float32), LOWEST), LOWEST)

    def cut(self, value: tf.Tensor, listwise: bool = True) -> tf.Tensor:
        """The part of [B, L, ...], or of [B, ...], that belongs to the request."""
        return value[: self._size, : self._width] if listwise else value[: self._size]


def _ranked(outputs: Tensors, batch: _Batch) -> Tensors:
    """Sorts the outputs of items by score, best first; ties keep the order of the request."""
    scores = batch.masked(outputs[SCORES])
    best_first = tf.argsort(scores, axis=1, direction="DESCENDING", stable=True)
    # Padding comes after the items of a list, so among equal scores it stays behind them.
    real = tf.sequence_mask(batch.valid, tf.shape(batch.mask)[1])
    answer = {
        "order": batch.cut(tf.where(real, best_first, -1)),
        SCORES: batch.cut(tf.gather(scores, best_first, batch_dims=1)),
        "valid": batch.cut(batch.valid, listwise=False),
    }
    for name, value in outputs.items():
        if name.startswith(f"{SCORES}_"):
            answer[name] = batch.cut(tf.gather(batch.masked(value), best_first, batch_dims=1))
        elif names_experts(name):
            item_level = value.shape.rank == 3
            if item_level:
                padding = tf.cast(-1 if name.startswith(EXPERT_IDS) else 0, value.dtype)
                value = tf.gather(value, best_first, batch_dims=1)
                value = tf.where(tf.expand_dims(real, axis=-1), value, padding)
            answer[name] = batch.cut(value, item_level)
    return answer
