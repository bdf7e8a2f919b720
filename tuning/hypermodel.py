"""KerasTuner hypermodels: the values of the hyper-parameters become a run's settings and its model."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from tfr_moe import metrics
from tfr_moe._compat import import_keras_tuner, tf
from tfr_moe.config import BASELINE_NAMES, RunConfig, make_config
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.data.cached import CachedDatasetBuilder
from tfr_moe.data.parsed import ParsedSplit
from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema
from tfr_moe.training.pipeline import RankingPipeline
from tfr_moe.training.run import check_names, make_builder, make_scorer

from .config import Objective
from .dimensions import Choice, settings_above
from .records import Direction
from .spaces import Space, make_space

kt: Any = import_keras_tuner()


class RankingHyperModel(kt.HyperModel):
    """Any model of `tfr_moe.config.MODEL_NAMES`, with some of its settings left to a tuner.

    Of the models of `BASELINE_NAMES`, which are not Keras', it makes the settings of the trials.

    It serves the sweeps of `tfr-moe tune`, and KerasTuner's own tuners just as well:

        hypermodel = RankingHyperModel(DataFolder("data"), make_config({"model": "moe"}), "experts")
        tuner = keras_tuner.RandomSearch(
            hypermodel, keras_tuner.Objective("val_session_auc", "max"), max_trials=5)
        tuner.search(epochs=3)

    Args:
        folder: the data set.
        base: the settings that are not varied.
        space: what is varied, in any form that `make_space` takes.
        splits: the parsed data where it is in memory; None reads the records.

    Raises:
        UserError: for a space that does not fit the model or the data.
    """

    def __init__(
        self,
        folder: DataFolder,
        base: RunConfig,
        space: str | Mapping[str, Any],
        splits: dict[str, ParsedSplit] | None = None,
    ):
        super().__init__(name=base.model)
        self.folder = folder
        self.base = base
        self.splits = splits
        self.space: Space = make_space(space, base, folder.schema)

    def config(self, hp: Any, **fixed: Any) -> RunConfig:
        """The settings of a run for the values that `hp` holds, with `fixed` above all.

        Raises:
            UserError: if they don't go together.
        """
        settings, _ = self.space.suggest(hp)
        return self.make_config(settings, **fixed)

    def make_config(self, settings: Mapping[str, Any], **fixed: Any) -> RunConfig:
        """The base settings with others above them."""
        return make_config(settings_above(self.base, settings, fixed), "trial")

    def builder(self, config: RunConfig) -> ElwcDatasetBuilder:
        """What serves the batches: from memory where the data is parsed."""
        if self.splits is None:
            return make_builder(self.folder, config)
        return make_builder(self.folder, config, partial(CachedDatasetBuilder, self.splits))

    def declare(self, hp: Any) -> None:
        """Names all hyper-parameters of the space to `hp`, without a model."""
        self.space.suggest(hp)

    def build(self, hp: Any) -> tf.keras.Model:
        """The compiled model for the values that `hp` holds."""
        config = self.config(hp)
        scorer = make_scorer(self.folder, config)
        with tempfile.TemporaryDirectory() as nothing_to_resume:
            pipeline = RankingPipeline(
                scorer.model_builder(name=config.model),
                self.builder(config),
                config,
                Path(nothing_to_resume),
                Console(quiet=True),
            )
            return pipeline.compiled_model()

    def fit(self, hp: Any, model: tf.keras.Model, *args: Any, **kwargs: Any) -> Any:
        """Trains on the data set, unless data is given, for the epochs of `base`, unless told."""
        config = self.config(hp)
        if not args and "x" not in kwargs:
            builder = self.builder(config)
            kwargs["x"] = builder.build_train_dataset()
            kwargs.setdefault("validation_data", builder.build_valid_dataset())
            kwargs.setdefault("steps_per_epoch", config.steps_per_epoch)
        kwargs.setdefault("epochs", config.num_epochs)
        kwargs.setdefault("verbose", 0)
        return model.fit(*args, **kwargs)


def reported(base: RunConfig, schema: FeatureSchema) -> dict[str, Direction]:
    """What a run reports of the validation split, and whether it is to be large or small.

    With several tasks that is each metric of each task (`click_ndcg`) and their means (`ndcg`).

    Example:
        >>> schema = FeatureSchema(list_id="q", labels=["y"], features=[
        ...     {"name": "a", "scope": "example", "kind": "numeric"}])
        >>> reported(make_config({"model": "dnn", "metrics": ["ndcg_10"], "monitor": "loss"}), schema)
        {'ndcg_10': 'max', 'loss': 'min'}
    """
    tasks = base.model_copy(update={"monitor": "loss"}).tasks_over(schema)
    names = {f"{task.name}_{metric}": metric for task in tasks for metric in task.metrics}
    names |= {metric: metric for task in tasks for metric in task.metrics}
    if not tasks:
        names = {metric: metric for metric in base.metrics}
    directions: dict[str, Direction] = {
        name: "max" if metrics.higher_is_better(metric) else "min" for name, metric in names.items()
    }
    return directions if base.model in BASELINE_NAMES else {**directions, "loss": "min"}


def check_objective(objective: Objective, base: RunConfig, schema: FeatureSchema) -> Objective:
    """The objective with its direction, after making sure that the runs report it.

    Raises:
        UserError: naming what they report.
    """
    known = reported(base, schema)
    if objective.name not in known:
        raise UserError(
            f"objective {objective.name!r}: the runs of {base.model} do not report it; they report "
            f"{', '.join(known)} (base.metrics adds others)"
        )
    direction = known[objective.name]
    if objective.direction not in (None, direction):
        raise UserError(
            f"objective {objective.name}: its direction is {direction}, not {objective.direction}"
        )
    return Objective(name=objective.name, direction=direction)


def check_options(hypermodel: RankingHyperModel) -> None:
    """Makes the scorer of each listed value, which refuses what the data does not have.

    Raises:
        UserError: naming the hyper-parameter and the value.
    """
    _check_model(hypermodel.folder, hypermodel.base)
    for dimension in hypermodel.space.dimensions:
        for value, settings in dimension.options if isinstance(dimension, Choice) else ():
            try:
                _check_model(hypermodel.folder, hypermodel.make_config(settings))
            except UserError as error:
                raise UserError(f"space: {dimension.name} = {value}: {error}") from error


def _check_model(folder: DataFolder, config: RunConfig) -> None:
    check_names(config)
    if config.model not in BASELINE_NAMES:
        make_scorer(folder, config)
