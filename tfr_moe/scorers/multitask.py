"""The multi-task models: a score per label."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.layers.category_mmoe import CategoryMMoE
from tfr_moe.layers.features import EncodedFeatures
from tfr_moe.layers.outputs import Combination, CombinedScore, TaskScores
from tfr_moe.layers.task_sharing import MULTITASK
from tfr_moe.scorers.base import (
    FEATURES,
    ROUTING,
    TRUNK,
    FeatureScorer,
    Scores,
)

COMBINED = "combined_score"
"""Name of the layer that combines the scores of the tasks."""
_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*")  # of TensorFlow's scopes
_LAYERS = (FEATURES, TRUNK, ROUTING, "task_scores", COMBINED)
SCORES = "scores"
"""Name of the combined score; the score of a task is `scores_<task>`."""


@dataclass(eq=False, kw_only=True)
class MultiTaskScorer(FeatureScorer):
    """`single_task` to `mmoe`: one model with a score for each task.

    The model returns a dict of logits [B, L] by task, as TFR's MultiTaskPipeline and Keras' `fit`
    expect it, and for a single task logits [B, L].

    Args are those of `FeatureScorer` and of the layer of `network`, and:

    Args:
        network: a name of `tfr_moe.layers.MULTITASK`.
        tasks: per label the task that it is conditioned on or None (see `TaskScores`); None takes
            all labels of the schema, without conditions.

    Raises:
        UserError: for an unknown network, or a task with the name of a layer of the model.
    """

    network: str = "mmoe"
    tasks: Mapping[str, str | None] | None = None
    tower_hidden_dims: tuple[int, ...] = (64,)
    num_experts: int = 8
    l2_weight: float = 1e-3
    stitch_self_weight: float = 0.9
    tensor_ranks: tuple[int, int, int] = (16, 16, 2)

    def __post_init__(self) -> None:
        """Completes the tasks and checks them."""
        super().__post_init__()
        if self.network not in (*MULTITASK, "category_mmoe"):
            allowed = ", ".join(MULTITASK)
            raise UserError(f"network {self.network!r} is unknown; available: {allowed}")
        self.tasks = dict(self.tasks or dict.fromkeys(self.schema.labels))
        for name in self.tasks:
            if name in (self.network, *_LAYERS):
                raise UserError(f"tasks: {name!r} is a reserved name")
            if not _NAME.fullmatch(name):
                raise UserError(
                    f"tasks: {name!r} must have ASCII letters, digits, _, - and . only, and not "
                    "begin with _ or -; rename the label"
                )

    def score(self, features: EncodedFeatures, mask: tf.Tensor) -> Scores:
        """See `FeatureScorer`; logits [B, L, tasks]."""
        kinds: dict[str, Any] = {**MULTITASK, "category_mmoe": CategoryMMoE}
        kind = kinds[self.network]
        tasks = tuple(self.tasks or ())
        layer = kind(
            len(tasks),
            self.expert_hidden_dims,
            **self.arguments(kind),
            task_names=tasks,
            name=self.network,
        )
        outputs = layer(features.items, *self.gate_inputs(features), mask=mask)
        return Scores.of_layer(layer, outputs)

    def gate_inputs(self, features: EncodedFeatures) -> tuple[tf.Tensor, ...]:
        """Vectors of the lists [B, q] that the gates of the network read, beside the items."""
        return ()

    def __call__(
        self,
        context_features: Mapping[str, tf.Tensor],
        example_features: Mapping[str, tf.Tensor],
        mask: tf.Tensor,
    ) -> Any:
        """Raw features and mask [B, L] -> logits [B, L], by task where there are several labels."""
        logits = super().__call__(context_features, example_features, mask)
        tasks = self.tasks or {}
        if len(tasks) == 1:
            return logits[:, :, 0]
        named = TaskScores(tasks, name="task_scores")
        scores = named(logits, mask=mask)
        # Keras names losses and metrics of an output after the layer that made it.
        return {
            name: tf.keras.layers.Activation("linear", name=name, dtype="float32")(score)
            for name, score in scores.items()
        }


@dataclass(eq=False, kw_only=True)
class CategoryMMoEScorer(MultiTaskScorer):
    """`category_mmoe`: each task gates the shared experts by the sub-category, with HSC per task.

    Args are those of `MultiTaskScorer` and `CategoryMMoE`.

    Raises:
        UserError: if the schema has no hierarchy.
    """

    network: str = field(default="category_mmoe", init=False)
    num_experts: int = 10
    top_k: int = 4
    hsc_weight: float | None = 1e-3
    gate_learning_rate_multiplier: float = 1.0
    noisy_gate: bool = True

    def __post_init__(self) -> None:
        """Checks the arguments against the schema."""
        super().__post_init__()
        if self.schema.hierarchy is None:
            raise UserError(
                "schema: a mixture needs `hierarchy` with its child and parent category"
            )

    def gate_inputs(self, features: EncodedFeatures) -> tuple[tf.Tensor, ...]:
        """Returns those of the sub-category and the top category."""
        tree = self.schema.hierarchy
        assert tree is not None
        return features.context[tree.child], features.context[tree.parent]


def combined_model(
    model: tf.keras.Model,
    weights: Mapping[str, float],
    combination: Combination = "probability",
) -> tf.keras.Model:
    """Adds the combined score to a model of several tasks, for export and serving.

    `model` is functional, with a dict of scores [B, L] by task; for the rest see `CombinedScore`.
    The result has the same inputs and variables and the outputs `scores`, combined, and
    `scores_<task>`, all [B, L].
    """
    layer = CombinedScore(weights, combination, name=COMBINED, dtype="float32")
    outputs = {SCORES: layer({name: model.output[name] for name in weights})}
    outputs |= {f"{SCORES}_{name}": model.output[name] for name in weights}
    return tf.keras.Model(model.input, outputs, name=model.name)
