"""Gates that depend on the sub-category alone, worked out beforehand and kept as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.layers.gating import NoisyTopKGate
from tfr_moe.layers.mixture import CategoryMixtureOfExperts
from tfr_moe.layers.multitask_category import CategoryMMoE
from tfr_moe.layers.multitask_scores import TaskOfCategory, TaskScores
from tfr_moe.schema import MASK, PAIR_SEPARATOR
from tfr_moe.scorers.base import TRUNK


class _Folded(tf.keras.layers.Layer):
    """Experts as `layer` mixes them, chosen by a table: row of the sub-category -> ids and weights."""

    def __init__(self, layer: Any, gates: Sequence[NoisyTopKGate], vectors: Any):
        super().__init__(name="folded_gates", dtype="float32")
        self.mixing = layer
        decided = [gate(tf.cast(vectors, tf.float32)) for gate in gates]
        self.ids = [tf.Variable(d.indices, trainable=False, name="expert_ids") for d in decided]
        self.weighing = [
            tf.Variable(d.weights, trainable=False, name="expert_weights") for d in decided
        ]

    def call(self, inputs: Any, rows: Any, mask: Any) -> dict[str, Any]:
        ids = [tf.gather(tf.convert_to_tensor(table), rows) for table in self.ids]
        weights = [tf.gather(tf.convert_to_tensor(table), rows) for table in self.weighing]
        if isinstance(self.mixing, CategoryMMoE):
            spread = [self.mixing.spread(*pair) for pair in zip(ids, weights, strict=True)]
            logits = self.mixing.mix(inputs, tf.stack(spread, axis=1), mask)
            suffixes = [f"_{name}" for name in self.mixing.task_names]
        else:
            outputs = tf.cast(self.mixing.towers(inputs, ids[0], mask=mask), tf.float32)
            logits, suffixes = self.mixing.mix(outputs, weights[0]), [""]
            if self.mixing.shared is not None:
                logits += self.mixing.shared(inputs, mask=mask)
        found = {"logits": logits}
        for suffix, own_ids, own_weights in zip(suffixes, ids, weights, strict=True):
            found[f"expert_ids{suffix}"] = own_ids
            found[f"expert_weights{suffix}"] = own_weights
        return found


def folded(model: tf.keras.Model) -> tf.keras.Model:
    """The same model with the choice of experts looked up by sub-category instead of computed.

    It shares the variables of `model` and holds the table besides, so it is for inference alone: it does
    not follow when the gates change.

    Raises:
        UserError: if the model has no experts, or a gate that sees more than the sub-category.
    """
    for layer in model.layers:
        if isinstance(layer, (CategoryMixtureOfExperts, CategoryMMoE)):
            return _with_table(model, layer)
    raise UserError("--fold-gate: this model has no gate by category")


def _with_table(model: tf.keras.Model, layer: Any) -> tf.keras.Model:
    encoder = model.get_layer("features")
    hierarchy = encoder.schema.hierarchy
    child = None if hierarchy is None else encoder.output.context[hierarchy.child]
    category = isinstance(layer, CategoryMMoE)
    if not category and not _sees_only(layer, child):
        raise UserError("--fold-gate: the gate sees more than the sub-category (see gate_features)")
    gates = layer.gates if category else [layer.inference_gate]
    names = [model.input[name] for name in (hierarchy.parent, hierarchy.child)]
    keys = tf.strings.join(names, PAIR_SEPARATOR)
    rows = tf.squeeze(encoder.lookups[hierarchy.child](keys), axis=-1)
    trunks = [own.output for own in model.layers if own.name == TRUNK]
    items = trunks[0] if trunks else encoder.output.items
    table = _Folded(layer, gates, encoder.embeddings[hierarchy.child].embeddings)
    found = table(items, rows, model.input[MASK])
    before = layer.output if category else layer.output["logits"]
    if before is model.output:
        return tf.keras.Model(model.input, found["logits"], name=model.name)
    needs = {TaskScores: MASK, TaskOfCategory: hierarchy.parent}
    rest = [model.input[needs[type(own)]] for own in model.layers if type(own) in needs]
    head = tf.keras.Model([before, *rest], model.output, name="head")
    return tf.keras.Model(model.input, head([found["logits"], *rest]), name=model.name)


def _sees_only(layer: Any, block: Any) -> bool:
    """Whether the gate's input is that one block of the features."""
    inputs = layer.inbound_nodes[0].call_args[1]
    return block is not None and inputs is block and layer.parent_gate is None
