"""The KerasTuner hypermodel of the ranking models."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from tfr_moe._compat import import_keras_tuner, tf
from tfr_moe.config import RunConfig, make_config
from tfr_moe.data.folder import DataFolder
from tfr_moe.training.pipeline import RankingPipeline
from tfr_moe.training.run import make_builder, make_scorer

from .space import SearchSpace, make_space, settings_above

kt: Any = import_keras_tuner()


class RankingHyperModel(kt.HyperModel):
    """A model of `tfr_moe.config.MODEL_NAMES` some of whose settings a tuner chooses.

    For `BASELINE_NAMES`, which are not Keras models, it only makes the settings of trials. Sweeps
    use it, and it works with KerasTuner's own tuners:

        hypermodel = RankingHyperModel(
            DataFolder("data"), make_config({"model": "moe"}), {"top_k": [1, 2, 4]})
        tuner = keras_tuner.RandomSearch(
            hypermodel, keras_tuner.Objective("val_session_auc", "max"), max_trials=5)
        tuner.search(epochs=3)

    Args:
        folder: the data set.
        base: the settings that do not vary.
        space: what varies, see `make_space`.

    Raises:
        UserError: for a space that does not fit the model or the data.
    """

    def __init__(self, folder: DataFolder, base: RunConfig, space: Mapping[str, Any]):
        super().__init__(name=base.model)
        self.folder = folder
        self.base = base
        self.space: SearchSpace = make_space(space, base)

    def make_config(self, settings: Mapping[str, Any], **fixed: Any) -> RunConfig:
        """The base settings with those of a point of the space, overridden by `fixed`.

        Raises:
            UserError: if they are invalid together.
        """
        return make_config(settings_above(self.base, settings, fixed), "trial")

    def build(self, hp: Any) -> tf.keras.Model:
        """The compiled model for the values in `hp`."""
        config = self.make_config(self.space.suggest(hp))
        scorer = make_scorer(self.folder, config)
        with tempfile.TemporaryDirectory() as nothing_to_resume:
            pipeline = RankingPipeline(
                scorer.model_builder(name=config.model),
                make_builder(self.folder, config),
                config,
                Path(nothing_to_resume),
                Console(quiet=True),
            )
            return pipeline.compiled_model()

    def fit(self, hp: Any, model: tf.keras.Model, *args: Any, **kwargs: Any) -> Any:
        """Trains; data and number of epochs default to the data set and `base`."""
        config = self.make_config(self.space.suggest(hp))
        if not args and "x" not in kwargs:
            builder = make_builder(self.folder, config)
            kwargs["x"] = builder.build_train_dataset()
            kwargs.setdefault("validation_data", builder.build_valid_dataset())
            kwargs.setdefault("steps_per_epoch", config.training.steps_per_epoch)
        kwargs.setdefault("epochs", config.training.num_epochs)
        kwargs.setdefault("verbose", 0)
        return model.fit(*args, **kwargs)
