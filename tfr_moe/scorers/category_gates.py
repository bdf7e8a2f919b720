"""What gates that see categories alone decide, asked category by category."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.layers.gating import GateOutput
from tfr_moe.layers.mixture import CategoryMixtureOfExperts
from tfr_moe.layers.multitask_category import CategoryMMoE
from tfr_moe.schema import PAIR_SEPARATOR, Hierarchy

MixingLayer = CategoryMixtureOfExperts | CategoryMMoE


def mixing_layer(model: tf.keras.Model) -> MixingLayer | None:
    """The layer of a model whose experts are chosen by category, if it has one."""
    kinds = (CategoryMixtureOfExperts, CategoryMMoE)
    return next((layer for layer in model.layers if isinstance(layer, kinds)), None)


def needs_parent(layer: MixingLayer) -> bool:
    """Whether the choice follows from the top category too, and not from the sub-category alone."""
    return isinstance(layer, CategoryMixtureOfExperts) and layer.parent_gate is not None


def parent_rows(encoder: Any, hierarchy: Hierarchy, keys: Sequence[str]) -> Any:
    """Rows of the top categories' vocabulary, int32 [C], for keys `parent > child`."""
    names = [key.split(PAIR_SEPARATOR)[0] for key in keys]
    return tf.cast(encoder.lookups[hierarchy.parent](tf.constant(names)), tf.int32)


def decisions(
    layer: MixingLayer, encoder: Any, hierarchy: Hierarchy, children: Any, parents: Any
) -> list[GateOutput]:
    """What each gate decides about categories.

    Args:
        layer: has the gates: one, or one a task.
        encoder: the model's features, by whose embeddings gates see categories.
        hierarchy: the category tree.
        children: rows of the sub-categories' vocabulary, [C]; 0 is an unknown one.
        parents: rows of the top categories' vocabulary, [C]; looked at where `needs_parent`.
    """
    seen = tf.cast(encoder.embeddings[hierarchy.child](children), tf.float32)
    if isinstance(layer, CategoryMMoE):
        return [gate(seen) for gate in layer.gates]
    if not needs_parent(layer):
        return [layer.decide(seen)]
    return [layer.decide(seen, encoder.embeddings[hierarchy.parent](parents))]
