"""Which experts made a score: a model that shares all layers and also returns the gates' choice."""

from __future__ import annotations

from typing import Any

from tfr_moe._compat import tf
from tfr_moe.layers.extraction import ProgressiveExtraction
from tfr_moe.layers.mixture import CategoryMixtureOfExperts
from tfr_moe.layers.multitask import MixtureOfTasks
from tfr_moe.layers.multitask_category import CategoryMMoE
from tfr_moe.layers.multitask_scores import TaskOfCategory
from tfr_moe.schema import MASK
from tfr_moe.scorers.base import TRUNK

_IDS, _WEIGHTS = "expert_ids", "expert_weights"

Choice = tuple[Any, Any]
"""Ids and weights of the experts, heaviest first."""


def explanation_model(model: tf.keras.Model) -> tf.keras.Model | None:
    """The same model with the gates' choice beside the scores.

    Args:
        model: a functional model, such as `FeatureScorer.build_model` makes or, for several tasks,
            `combined_model`.

    Returns:
        A model over the same inputs and variables. Its outputs are the model's own (a single one as
        `logits`, [B, L]), and `expert_ids` int32 and `expert_weights` float32, heaviest expert first: [B, K]
        for a gate per list, [B, L, K] for a gate per item. Where each task has a gate of its own they
        are `expert_ids_<task>` and `expert_weights_<task>`; where tasks are groups of categories, those
        of the list's group. A gate over all experts, as in `mmoe`, has K = N; that of `ple` is of the
        last level, over the experts that the list's domain may use. None where there are no experts.
    """
    for layer in model.layers:
        if _tells_experts(layer):
            told = layer.output
            tasks = [name.removeprefix(_IDS) for name in told if name.startswith(_IDS)]
            choices = {t[1:]: (told[f"{_IDS}{t}"], told[f"{_WEIGHTS}{t}"]) for t in tasks}
        elif isinstance(layer, (MixtureOfTasks, CategoryMMoE)):
            choices = _choices(model, layer)
        elif isinstance(layer, ProgressiveExtraction):
            choices = {"": _GatesOfDomains(layer)(*call_inputs(layer), model.input[MASK])}
        else:
            continue
        own = model.output if isinstance(model.output, dict) else {"logits": model.output}
        return tf.keras.Model(model.input, {**own, **_named(model, choices)})
    return None


def num_experts(model: tf.keras.Model) -> int:
    """The number of experts that the explanation's ids are of; 0 where there are none."""
    kinds = (CategoryMixtureOfExperts, MixtureOfTasks, CategoryMMoE, ProgressiveExtraction)
    return next((layer.num_experts for layer in model.layers if isinstance(layer, kinds)), 0)


class _GatesOfDomains(tf.keras.layers.Layer):
    """Numbers and weights [B, L, K] of the experts that `layer` gates to; in a layer, see below."""

    def __init__(self, layer: ProgressiveExtraction):
        super().__init__(name="gates_of_domains", dtype="float32")
        self.gated = layer

    def call(self, inputs: Any, domains: Any, mask: Any) -> Any:
        return self.gated.gate_of_items(inputs, domains, mask)


class _GatesOfItems(tf.keras.layers.Layer):
    """Weights [B, L, gates, N] of the gates that `layer` has; in a layer, as they are its variables."""

    def __init__(self, layer: MixtureOfTasks):
        super().__init__(name="gates_of_items", dtype="float32")
        self.gated = layer

    def call(self, inputs: Any, mask: Any) -> Any:
        return self.gated.gate_of_items(inputs, mask)


def call_inputs(layer: Any) -> Any:
    """The tensors that a layer of a functional model is called with."""
    return layer.inbound_nodes[0].call_args


def _tells_experts(layer: Any) -> bool:
    """Whether a layer's outputs name the experts, as those of `CategoryMixtureOfExperts` do."""
    return isinstance(layer.output, dict) and any(name.startswith(_IDS) for name in layer.output)


def _choices(model: tf.keras.Model, layer: MixtureOfTasks | CategoryMMoE) -> dict[str, Choice]:
    """The choice of each gate, by the task that it is for; "" for one gate for all tasks."""
    encoder = model.get_layer("features")
    encoded, mask = encoder.output, model.input[MASK]
    if isinstance(layer, CategoryMMoE):
        gates = layer.choose(encoded.context[encoder.schema.hierarchy.child])
        return {
            name: (g.indices, g.weights) for name, g in zip(layer.task_names, gates, strict=True)
        }
    trunks = [own.output for own in model.layers if own.name == TRUNK]
    weights = _GatesOfItems(layer)(trunks[0] if trunks else encoded.items, mask)
    found = {}
    for place, name in enumerate(layer.gate_names):
        top, ids = tf.math.top_k(weights[:, :, place], k=layer.num_experts)
        found[name] = (ids, top)
    return found


def _named(model: tf.keras.Model, choices: dict[str, Choice]) -> dict[str, Any]:
    groups = [part for part in model.submodules if isinstance(part, TaskOfCategory)]
    if groups and "" not in choices:
        parent = model.input[model.get_layer("features").schema.hierarchy.parent]
        task = groups[0].task(parent)
        ids, weights = (
            tf.gather(tf.stack(parts, axis=1), task, axis=1, batch_dims=1)
            for parts in zip(*choices.values(), strict=True)
        )
        choices = {"": (ids, weights)}
    outputs = {}
    for task, (ids, weights) in choices.items():
        suffix = f"_{task}" if task else ""
        outputs[f"{_IDS}{suffix}"], outputs[f"{_WEIGHTS}{suffix}"] = ids, weights
    return outputs
