"""The multi-task models: a score per label, or a tower per group of categories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.layers.category_groups import CategoryGroups
from tfr_moe.layers.category_mmoe import CategoryMMoE
from tfr_moe.layers.features import EncodedFeatures
from tfr_moe.layers.task_scores import Combination, CombinedScore, TaskScores
from tfr_moe.layers.task_sharing import MULTITASK
from tfr_moe.schema import FeatureSchema, FeatureTables
from tfr_moe.scorers.base import FEATURES, ROUTING, TRUNK, FeatureScorer, Routing, Scores

COMBINED = "combined_score"
"""Name of the layer that combines the scores of the tasks."""
_LAYERS = (FEATURES, TRUNK, ROUTING, "task_scores", COMBINED, "category_groups")
_GROUP = "group of the list"
_SETTINGS = {
    "l2_constrained": ("l2_weight",),
    "cross_stitch": ("stitch_self_weight",),
    "tensor_factorization": ("tensor_ranks",),
    "omoe": ("num_experts",),
    "mmoe": ("num_experts",),
    "category_mmoe": (
        "num_experts",
        "top_k",
        "hsc_weight",
        "gate_learning_rate_multiplier",
        "noisy_gate",
    ),
}

SCORES = "scores"
"""Name of the combined score; the score of a task is `scores_<task>`."""


def top_categories(schema: FeatureSchema, tables: FeatureTables) -> tuple[str, list[str]]:
    """The feature of the parent category, and its vocabulary from most to least frequent.

    Raises:
        UserError: without a hierarchy or a vocabulary.
    """
    if schema.hierarchy is None:
        raise UserError("category_groups: the schema has no `hierarchy` with a parent category")
    parent = schema.hierarchy.parent
    words = tables.vocabularies.get(parent)
    if words is None:
        raise UserError(
            f"category_groups: feature {parent!r} must have a vocabulary, not hash_buckets"
        )
    if isinstance(words, str):
        return parent, Path(words).read_text(encoding="utf-8").splitlines()
    return parent, list(words)


def groups_of_categories(
    groups: int | Sequence[Sequence[str]], schema: FeatureSchema, tables: FeatureTables
) -> tuple[tuple[str, ...], ...]:
    """Groups of top categories, which are the tasks or domains of a model.

    Args:
        groups: the groups, or their number: categories are then assigned from the most to the least
            frequent in alternating directions, which gives groups of about the same size.
        schema: has the parent category.
        tables: has its vocabulary, most frequent first.

    Raises:
        UserError: without a hierarchy or a vocabulary, for more groups than categories, and for a
            name that is unknown or occurs twice.

    Example:
        >>> schema = FeatureSchema.model_validate(
        ...     {
        ...         "list_id": "query",
        ...         "labels": ["click"],
        ...         "hierarchy": {"child": "sub", "parent": "top"},
        ...         "features": [
        ...             {"name": name, "scope": "context", "kind": "categorical"}
        ...             for name in ("top", "sub")
        ...         ],
        ...     }
        ... )
        >>> groups_of_categories(2, schema, FeatureTables({}, {"top": ["a", "b", "c", "d"]}))
        (('a', 'd'), ('b', 'c'))
    """
    parent, names = top_categories(schema, tables)
    if isinstance(groups, int):
        if groups > len(names):
            raise UserError(
                f"category_groups: {groups} groups, but there are {len(names)} categories"
            )
        balanced: list[list[str]] = [[] for _ in range(groups)]
        for index, name in enumerate(names):
            turn, offset = divmod(index, groups)
            balanced[groups - 1 - offset if turn % 2 else offset].append(name)
        return tuple(map(tuple, balanced))
    grouped = [name for group in groups for name in group]
    for name in grouped:
        if name not in names:
            raise UserError(
                f"category_groups: {name!r} is not a value of {parent}; "
                f"available: {', '.join(names)}"
            )
        if grouped.count(name) > 1:
            raise UserError(f"category_groups: {name!r} occurs twice")
    return tuple(map(tuple, groups))


class MultiTaskScorer(FeatureScorer):
    """`single_task` to `mmoe`: one model with a score for each task.

    The model returns a dict of logits [B, L] by task, as TFR's MultiTaskPipeline and Keras' `fit`
    expect it. With `category_groups`, and for a single task, it returns logits [B, L]. Logits of
    tasks with several outputs, one per grade (`tfr_moe.layers.outputs`), are [B, L, M].

    Args:
        schema: see `FeatureScorer`.
        tables: see `FeatureScorer`.
        network: a name of `tfr_moe.layers.MULTITASK`.
        tasks: per label the task that it is conditioned on or None (see `TaskScores`); None takes
            all labels of the schema, without conditions.
        category_groups: groups of top categories as tasks in place of labels: each list is scored
            by the tower of its group. See `groups_of_categories`; a category of no group belongs to
            the last. Xiao et al. 2021 (section II) set up MMoE for product search like this,
            "treating different groups of major product categories as different tasks, within a
            mini-batch".
        tower_hidden_dims: hidden layers of each task's tower, on top of `expert_hidden_dims`.
        ordinal_tasks: tasks that keep all outputs if `num_outputs` is above 1; None for all of
            them. The others use the first.
        num_experts: N of `omoe` and `mmoe`.
        l2_weight: see `L2Constrained`.
        stitch_self_weight: see `CrossStitch`.
        tensor_ranks: see `TensorFactorization`.
        **kwargs: see `FeatureScorer`.

    Raises:
        UserError: for an unknown network or group, or a task with the name of a layer of the model.
    """

    def __init__(
        self,
        schema: FeatureSchema,
        tables: FeatureTables,
        *args: Any,
        network: str = "mmoe",
        tasks: Mapping[str, str | None] | None = None,
        category_groups: int | Sequence[Sequence[str]] | None = None,
        tower_hidden_dims: tuple[int, ...] = (64,),
        ordinal_tasks: Sequence[str] | None = None,
        num_experts: int = 8,
        l2_weight: float = 1e-3,
        stitch_self_weight: float = 0.9,
        tensor_ranks: tuple[int, int, int] = (16, 16, 2),
        **kwargs: Any,
    ):
        super().__init__(schema, tables, *args, **kwargs)
        if network not in (*MULTITASK, "category_mmoe"):
            raise UserError(f"network {network!r} is unknown; available: {', '.join(MULTITASK)}")
        self.network = network
        self.tasks = dict(tasks or dict.fromkeys(schema.labels))
        for name in self.tasks:
            if name in (network, *_LAYERS):
                raise UserError(f"tasks: {name!r} is the name of a layer and can't be a task")
        self.category_groups: tuple[tuple[str, ...], ...] | None = None
        if category_groups is not None:
            self.category_groups = groups_of_categories(category_groups, schema, tables)
        self.tower_hidden_dims = tuple(tower_hidden_dims)
        ordinal = self.tasks if ordinal_tasks is None else ordinal_tasks
        self.ordinal_tasks = tuple(ordinal) if self.num_outputs > 1 else ()
        self.num_experts = num_experts
        self.l2_weight = l2_weight
        self.stitch_self_weight = stitch_self_weight
        self.tensor_ranks = tuple(tensor_ranks)

    @property
    def task_names(self) -> list[str]:
        """The names of the towers."""
        return [f"group_{i}" for i in range(len(self.category_groups or ()))] or list(self.tasks)

    def network_settings(self) -> dict[str, Any]:
        """The arguments that only the layer of this network has."""
        return {name: getattr(self, name) for name in _SETTINGS.get(self.network, ())}

    def layer_settings(self) -> dict[str, Any]:
        """The arguments of the layer."""
        return {
            "hidden_dims": self.expert_hidden_dims,
            "tower_hidden_dims": self.tower_hidden_dims,
            "num_outputs": self.num_outputs,
            "activation": self.activation,
            "dropout": self.dropout,
            "seed": self.seed,
            "task_names": self.task_names,
            **self.network_settings(),
        }

    def of_lists(self, context_features: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the index of the lists' tasks, where tasks are groups of categories."""
        if not self.category_groups or self.schema.hierarchy is None:
            return {}
        parents = context_features[self.schema.hierarchy.parent]
        groups = CategoryGroups(self.category_groups, name="category_groups")(parents)
        # Group 0, of all other categories, belongs to the last task.
        return {_GROUP: tf.math.floormod(groups - 1, len(self.category_groups))}

    def outputs(
        self, features: EncodedFeatures, mask: tf.Tensor, input_width: int
    ) -> tuple[tf.Tensor | dict[str, tf.Tensor], int]:
        """The outputs of a new layer, with logits [B, L, tasks], and its number of experts."""
        layer = MULTITASK[self.network](
            len(self.task_names), name=self.network, **self.layer_settings()
        )
        return layer(features.items, mask=mask), getattr(layer, "num_experts", 0)

    def score(self, features: EncodedFeatures, mask: tf.Tensor, input_width: int) -> Scores:
        """See `FeatureScorer`; logits [B, L, tasks], with groups of categories [B, L]."""
        scores = Scores.of_layer(*self.outputs(features, mask, input_width))
        if not self.category_groups:
            return scores
        task, routing = features.context[_GROUP], scores.routing
        if len(routing) > 1:
            parts = [tf.stack(part, axis=1) for part in zip(*routing.values(), strict=True)]
            routing = {"": Routing(*(tf.gather(p, task, axis=1, batch_dims=1) for p in parts))}
        logits = tf.gather(scores.logits, task, axis=2, batch_dims=1)
        return Scores(logits, routing, scores.num_experts)

    def __call__(
        self,
        context_features: Mapping[str, tf.Tensor],
        example_features: Mapping[str, tf.Tensor],
        mask: tf.Tensor,
    ) -> Any:
        """Raw features and mask [B, L] -> logits [B, L], by task where there are several labels."""
        logits = super().__call__(context_features, example_features, mask)
        if self.category_groups:
            return logits
        if len(self.tasks) == 1:
            return logits[:, :, 0]
        scores = TaskScores(self.tasks, self.ordinal_tasks, name="task_scores")(logits, mask=mask)
        # Keras names losses and metrics of an output after the layer that made it.
        return {
            name: tf.keras.layers.Activation("linear", name=name, dtype="float32")(score)
            for name, score in scores.items()
        }


class CategoryMMoEScorer(MultiTaskScorer):
    """`category_mmoe`: each task gates the shared experts by the sub-category, with HSC per task.

    Args:
        schema: see `FeatureScorer`.
        tables: see `FeatureScorer`.
        num_experts: see `CategoryMMoE`, like the next four.
        top_k: K, of each task.
        hsc_weight: lambda_1; None leaves out the constraint gates.
        gate_learning_rate_multiplier: factor on the gates' step under Adam-like optimizers.
        noisy_gate: whether the gates add noise in training.
        **kwargs: see `MultiTaskScorer`.

    Raises:
        UserError: if the schema has no hierarchy.
    """

    def __init__(
        self,
        schema: FeatureSchema,
        tables: FeatureTables,
        *args: Any,
        num_experts: int = 10,
        top_k: int = 4,
        hsc_weight: float | None = 1e-3,
        gate_learning_rate_multiplier: float = 1.0,
        noisy_gate: bool = True,
        **kwargs: Any,
    ):
        kwargs |= {"network": "category_mmoe", "num_experts": num_experts}
        super().__init__(schema, tables, *args, **kwargs)
        self.top_k = top_k
        self.hsc_weight = hsc_weight
        self.gate_learning_rate_multiplier = gate_learning_rate_multiplier
        self.noisy_gate = noisy_gate
        if schema.hierarchy is None:
            raise UserError(
                "schema: a mixture needs `hierarchy` with its child and parent category"
            )

    def outputs(
        self, features: EncodedFeatures, mask: tf.Tensor, input_width: int
    ) -> tuple[dict[str, tf.Tensor], int]:
        """See `MultiTaskScorer`."""
        hierarchy = self.schema.hierarchy
        assert hierarchy is not None
        layer = CategoryMMoE(len(self.task_names), name=self.network, **self.layer_settings())
        outputs = layer(
            features.items,
            features.context[hierarchy.child],
            features.context[hierarchy.parent],
            mask=mask,
        )
        return outputs, layer.num_experts


def combined_model(
    model: tf.keras.Model,
    weights: Mapping[str, float],
    combination: Combination = "probability",
    ordinal_tasks: Sequence[str] = (),
) -> tf.keras.Model:
    """Adds the combined score to a model of several tasks, for export and serving.

    Args:
        model: a functional model whose output is a dict of scores [B, L] by task.
        weights: of each task, see `CombinedScore`.
        combination: see `CombinedScore`.
        ordinal_tasks: see `CombinedScore`.

    Returns:
        A model with the same inputs and variables and the outputs `scores`, combined, and
        `scores_<task>`, all [B, L].
    """
    layer = CombinedScore(weights, combination, ordinal_tasks, name=COMBINED, dtype="float32")
    outputs = {SCORES: layer({name: model.output[name] for name in weights})}
    outputs |= {f"{SCORES}_{name}": model.output[name] for name in weights}
    return tf.keras.Model(model.input, outputs, name=model.name)
