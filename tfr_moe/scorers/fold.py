"""Gates that depend on categories alone, worked out beforehand and kept as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.layers.gating import GateOutput
from tfr_moe.layers.mixture import CategoryMixtureOfExperts
from tfr_moe.layers.multitask_category import CategoryMMoE
from tfr_moe.layers.multitask_scores import TaskOfCategory, TaskScores
from tfr_moe.schema import MASK, PAIR_SEPARATOR, Hierarchy
from tfr_moe.scorers.base import TRUNK
from tfr_moe.scorers.category_gates import (
    MixingLayer,
    decisions,
    mixing_layer,
    needs_parent,
    parent_rows,
)
from tfr_moe.scorers.explain import call_inputs


class _Folded(tf.keras.layers.Layer):
    """Experts as `layer` mixes them, chosen by a table: row of the category -> ids and weights."""

    def __init__(self, layer: MixingLayer, decided: Sequence[GateOutput]):
        super().__init__(name="folded_gates", dtype="float32")
        self.mixing = layer
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
    """The same model with the choice of experts looked up by category instead of computed.

    It shares the variables of `model` and holds the table besides, so it is for inference alone: it does
    not follow when the gates change.

    Raises:
        UserError: if the model has no experts, or a gate that sees more than the category.
    """
    layer = mixing_layer(model)
    if layer is None:
        raise UserError("--fold-gate: this model has no gate by category")
    return _with_table(model, layer)


def _with_table(model: tf.keras.Model, layer: MixingLayer) -> tf.keras.Model:
    encoder = model.get_layer("features")
    hierarchy = encoder.schema.hierarchy
    category = isinstance(layer, CategoryMMoE)
    if not category and not _sees_only(layer, encoder, hierarchy):
        raise UserError("--fold-gate: the gate sees more than the category (see gate_features)")
    keys = tf.strings.join(
        [model.input[name] for name in (hierarchy.parent, hierarchy.child)], PAIR_SEPARATOR
    )
    rows = tf.squeeze(encoder.lookups[hierarchy.child](keys), axis=-1)
    children, parents = _categories(encoder, hierarchy, needs_parent(layer))
    if needs_parent(layer):
        # An unknown sub-category is known by its parent: those rows stand behind the others.
        unknown = encoder.lookups[hierarchy.parent](model.input[hierarchy.parent])
        first = encoder.lookups[hierarchy.child].vocabulary_size()
        rows = tf.where(rows > 0, rows, first + tf.squeeze(unknown, axis=-1))
    trunks = [own.output for own in model.layers if own.name == TRUNK]
    items = trunks[0] if trunks else encoder.output.items
    table = _Folded(layer, decisions(layer, encoder, hierarchy, children, parents))
    found = table(items, rows, model.input[MASK])
    before = layer.output if category else layer.output["logits"]
    if before is model.output:
        return tf.keras.Model(model.input, found["logits"], name=model.name)
    needs = {TaskScores: MASK, TaskOfCategory: hierarchy.parent}
    rest = [model.input[needs[type(own)]] for own in model.layers if type(own) in needs]
    head = tf.keras.Model([before, *rest], model.output, name="head")
    return tf.keras.Model(model.input, head([found["logits"], *rest]), name=model.name)


def _categories(encoder: Any, hierarchy: Hierarchy, with_parents: bool) -> tuple[Any, Any]:
    """Rows of sub- and top categories that the table is about: all, then unknown ones by parent."""
    children = tf.range(encoder.embeddings[hierarchy.child].input_dim)
    if not with_parents:
        return children, None
    keys = encoder.lookups[hierarchy.child].get_vocabulary()
    others = tf.range(encoder.embeddings[hierarchy.parent].input_dim)
    parents = parent_rows(encoder, hierarchy, keys)
    return tf.concat([children, tf.zeros_like(others)], 0), tf.concat([parents, others], 0)


def _sees_only(layer: CategoryMixtureOfExperts, encoder: Any, hierarchy: Hierarchy | None) -> bool:
    """Whether the gate's input is the sub-category, and its parent's, where it has one, a vocabulary's."""
    if hierarchy is None or call_inputs(layer)[1] is not encoder.output.context[hierarchy.child]:
        return False
    lookups = [encoder.lookups[name] for name in (hierarchy.child, hierarchy.parent)]
    words = all(isinstance(lookup, tf.keras.layers.StringLookup) for lookup in lookups)
    return words or not needs_parent(layer)
