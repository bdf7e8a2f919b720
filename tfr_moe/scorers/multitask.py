"""The multi-task family as scorers: a score per label, or a tower per group of categories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.layers.features import EncodedFeatures
from tfr_moe.layers.multitask_category import CategoryMMoE
from tfr_moe.layers.multitask_registry import MULTITASK, match_budget
from tfr_moe.layers.multitask_scores import (
    Combination,
    CombinedScore,
    TaskOfCategory,
    TaskScores,
)
from tfr_moe.schema import FeatureSchema, FeatureTables
from tfr_moe.scorers.base import FeatureScorer

_LAYERS = ("features", "task_scores", "combined_score")

SCORES = "scores"
"""The name of the combined score; that of a task is `scores_<task>`."""


def top_categories(schema: FeatureSchema, tables: FeatureTables) -> tuple[str, list[str]]:
    """The parent category: the feature and its vocabulary, most frequent name first.

    Raises:
        UserError: without a hierarchy or a vocabulary.
    """
    if schema.hierarchy is None:
        raise UserError("category_groups: the schema names no `hierarchy` with a parent category")
    parent = schema.hierarchy.parent
    words = tables.vocabularies.get(parent)
    if words is None:
        raise UserError(
            f"category_groups: feature {parent!r} has no vocabulary, hash_buckets won't do"
        )
    if isinstance(words, str):
        return parent, Path(words).read_text(encoding="utf-8").splitlines()
    return parent, list(words)


def groups_of_categories(
    groups: int | Sequence[Sequence[str]], schema: FeatureSchema, tables: FeatureTables
) -> tuple[tuple[str, ...], ...]:
    """Groups of top categories, to be the tasks of a multi-task model.

    Args:
        groups: the groups, or their number: categories are then dealt out from the most frequent to the
            rarest, to and fro, so that the groups have about as much data each.
        schema: names the parent category.
        tables: has its vocabulary, most frequent first.

    Raises:
        UserError: without a hierarchy or a vocabulary, for more groups than categories, and for a name
            that is unknown or stands twice.

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
            raise UserError(f"category_groups: {groups} groups of {len(names)} categories")
        dealt: list[list[str]] = [[] for _ in range(groups)]
        for place, name in enumerate(names):
            there, back = divmod(place, groups)
            dealt[groups - 1 - back if there % 2 else back].append(name)
        return tuple(map(tuple, dealt))
    given = [name for group in groups for name in group]
    for name in given:
        if name not in names:
            raise UserError(
                f"category_groups: {name!r} is no {parent}; there are: {', '.join(names)}"
            )
        if given.count(name) > 1:
            raise UserError(f"category_groups: {name!r} stands twice")
    return tuple(map(tuple, groups))


class MultiTaskScorer(FeatureScorer):
    """`single_task` to `mmoe`: one model, a score for each task.

    The model returns a dict of logits [B, L] by task, as TFR's MultiTaskPipeline and Keras' `fit` take
    it. With `category_groups`, and where there is one task alone, it returns logits [B, L]. Of tasks with
    several outputs, one for each grade (`tfr_moe.levels`), they are [B, L, M].

    Args:
        network: a name of `tfr_moe.layers.MULTITASK`.
        tasks: per label the task that it presupposes or None (see `TaskScores`); None takes all
            labels of the schema, presupposing nothing.
        category_groups: groups of top categories as tasks in place of labels: each list is scored by the
            tower of its group. See `groups_of_categories`; a category of no group goes to the last.
        tower_hidden_dims: hidden layers of each task's tower, on top of `expert_hidden_dims`.
        parameter_budget: see `match_budget`; None leaves `expert_hidden_dims` as they are.
        graded_tasks: tasks that keep all outputs where `num_outputs` is above 1; None for all of them. Any
            other has the first.
        settings: more arguments of the layer, such as `num_experts`.
        **kwargs: see `FeatureScorer`.

    Raises:
        UserError: for a network, task or group that there isn't.
    """

    def __init__(
        self,
        *args: Any,
        network: str = "mmoe",
        tasks: Mapping[str, str | None] | None = None,
        category_groups: int | Sequence[Sequence[str]] | None = None,
        tower_hidden_dims: tuple[int, ...] = (64,),
        parameter_budget: int | None = None,
        graded_tasks: Sequence[str] | None = None,
        settings: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ):
        super().__init__(*args, **kwargs)
        if network not in (*MULTITASK, "category_mmoe"):
            raise UserError(f"network {network!r} is unknown; there are: {', '.join(MULTITASK)}")
        self.network = network
        self.tasks = dict(tasks or dict.fromkeys(self.schema.labels))
        for name in self.tasks:
            if name in (network, *_LAYERS):
                raise UserError(f"tasks: a task can't be called {name!r}, a layer of the model is")
        self.groups: tuple[tuple[str, ...], ...] = ()
        if category_groups is not None:
            self.groups = groups_of_categories(category_groups, self.schema, self.tables)
        self.tower_hidden_dims = tuple(tower_hidden_dims)
        self.parameter_budget = parameter_budget
        graded = self.tasks if graded_tasks is None else graded_tasks
        self.graded_tasks = tuple(graded) if self.num_outputs > 1 else ()
        self.settings = dict(settings or {})

    @property
    def task_names(self) -> list[str]:
        """The names of the towers."""
        return [f"group_{i}" for i in range(len(self.groups))] or list(self.tasks)

    def layer_settings(self, input_width: int) -> dict[str, Any]:
        """The arguments of the layer over input vectors of that width."""
        sizes: dict[str, Any] = {
            "hidden_dims": self.expert_hidden_dims,
            "tower_hidden_dims": self.tower_hidden_dims,
            "num_outputs": self.num_outputs,
            **self.settings,
        }
        if self.parameter_budget is not None:
            names, budget = self.task_names, self.parameter_budget
            sizes = match_budget(self.network, budget, input_width, len(names), **sizes)
        return {
            **sizes,
            "activation": self.activation,
            "dropout": self.dropout,
            "seed": self.seed,
            "task_names": self.task_names,
        }

    def score(self, features: EncodedFeatures, mask: Any, input_width: int) -> Any:
        """Encoded features and mask [B, L] -> logits of the towers [B, L, tasks], see `MultiTaskLayer`."""
        layer = MULTITASK[self.network](
            len(self.task_names), name=self.network, **self.layer_settings(input_width)
        )
        return layer(features.items, mask=mask)

    def __call__(
        self, context_features: Mapping[str, Any], example_features: Mapping[str, Any], mask: Any
    ) -> Any:
        """Raw features and mask [B, L] -> logits [B, L], by task where there are several labels."""
        logits = super().__call__(context_features, example_features, mask)
        if self.groups and self.schema.hierarchy is not None:
            parent = context_features[self.schema.hierarchy.parent]
            return TaskOfCategory(self.groups, name="task_of_category")(logits, parent)
        if len(self.tasks) == 1:
            return logits[:, :, 0]
        scores = TaskScores(self.tasks, self.graded_tasks, name="task_scores")(logits, mask=mask)
        # Keras names losses and metrics of an output after the layer that made it.
        return {
            name: tf.keras.layers.Activation("linear", name=name, dtype="float32")(score)
            for name, score in scores.items()
        }

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, ready for JSON."""
        return {
            **super().get_config(),
            "network": self.network,
            "tasks": self.tasks,
            "category_groups": [list(group) for group in self.groups] or None,
            "tower_hidden_dims": list(self.tower_hidden_dims),
            "parameter_budget": self.parameter_budget,
            "graded_tasks": list(self.graded_tasks),
            "settings": self.settings,
        }


class CategoryMMoEScorer(MultiTaskScorer):
    """`category_mmoe`: each task gates the shared experts by the sub-category, with HSC per task.

    Args:
        settings: arguments of `CategoryMMoE`: `num_experts`, `top_k`, `hsc_weight`, ...
        **kwargs: see `MultiTaskScorer`.

    Raises:
        UserError: if the schema names no hierarchy.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **{**kwargs, "network": "category_mmoe"})
        if self.schema.hierarchy is None:
            raise UserError(
                "schema: a mixture needs `hierarchy` with its child and parent category"
            )
        if self.parameter_budget is not None:
            raise UserError(
                "parameter_budget: category_mmoe computes K of its N experts, it has none"
            )

    def score(self, features: EncodedFeatures, mask: Any, input_width: int) -> Any:
        """Encoded features and mask [B, L] -> logits of the towers [B, L, tasks]."""
        hierarchy = self.schema.hierarchy
        assert hierarchy is not None
        layer = CategoryMMoE(
            len(self.task_names), name=self.network, **self.layer_settings(input_width)
        )
        return layer(
            features.items,
            features.context[hierarchy.child],
            features.context[hierarchy.parent],
            mask=mask,
        )


def combined_model(
    model: tf.keras.Model,
    weights: Mapping[str, float],
    combination: Combination = "probability",
    grades: Sequence[str] = (),
) -> tf.keras.Model:
    """A model of several tasks with a combined score: what is exported and served.

    Args:
        model: a functional model whose output is a dict of scores [B, L] by task.
        weights: of each task, see `CombinedScore`.
        combination: see `CombinedScore`.
        grades: see `CombinedScore`.

    Returns:
        A model over the same inputs and variables with the outputs `scores`, combined, and
        `scores_<task>`, all [B, L].
    """
    layer = CombinedScore(weights, combination, grades, name="combined_score", dtype="float32")
    outputs = {SCORES: layer({name: model.output[name] for name in weights})}
    outputs |= {f"{SCORES}_{name}": model.output[name] for name in weights}
    return tf.keras.Model(model.input, outputs, name=model.name)
