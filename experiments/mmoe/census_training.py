"""Training and tuning of one model on Census-Income."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import tensorflow as tf
from pydantic import PositiveInt, model_validator
from sklearn.metrics import roc_auc_score

from experiments.common.runs import Job, Result
from experiments.common.settings import StudySettings
from experiments.mmoe.census_data import PARTS, Split, encode, read_table
from experiments.mmoe.models import (
    Model,
    create_training_variables,
    match_budget,
    parameter_count,
)
from tfr_moe.layers import MULTITASK, logits_of
from tfr_moe.tuning import keras_tuner

MODELS: tuple[Model, ...] = get_args(Model)
_TUNING_SEEDS = 1_000_000  # disjoint from those of the runs
_MODEL_SPACE: dict[str, Callable[[Any], dict[str, Any]]] = {
    "l2_constrained": lambda hp: {
        "l2_weight": hp.Float("l2_weight", 1e-5, 1e-1, sampling="log", default=1e-3)
    },
    "cross_stitch": lambda hp: {
        "stitch_self_weight": hp.Float("stitch_self_weight", 0.5, 0.95, default=0.9)
    },
    "tensor_factorization": lambda hp: {"rank": hp.Choice("rank", [8, 16, 32, 64], default=16)},
    "omoe": lambda hp: {"num_experts": hp.Choice("num_experts", [4, 8], default=8)},
    "mmoe": lambda hp: {"num_experts": hp.Choice("num_experts", [4, 8], default=8)},
}


class CensusSettings(StudySettings):
    """Settings of the Census-Income study.

    The paper does not give the size of its networks, nor the number of trials and runs; the values
    here are a compromise with run time.

    Attributes:
        groups: numbers of the groups of tasks.
        models: names of the models.
        runs: runs of each model and group with the tuned settings, with seeds 0, 1, ...
        trials: number of tuning trials for each model and group.
        tuning_seed: random seed of the search.
        expert_units: width of each of MMoE's 8 experts; sets the number of parameters of all
            models.
        epochs: maximum number of epochs.
        patience: epochs without a better validation AUC after which training stops.
        batch_size: rows per step.
    """

    groups: tuple[Literal[1, 2], ...] = (1, 2)
    models: tuple[Model, ...] = MODELS
    runs: PositiveInt = 4
    trials: PositiveInt = 3
    tuning_seed: int = 0
    expert_units: PositiveInt = 8
    epochs: PositiveInt = 5
    patience: PositiveInt = 2
    batch_size: PositiveInt = 512

    SIZES: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        "small": {"runs": 2, "trials": 2, "expert_units": 2, "epochs": 2},
        "large": {"runs": 30, "trials": 30, "expert_units": 64, "epochs": 30},
    }
    MAY_GROW: ClassVar[frozenset[str]] = frozenset({"runs"})

    @model_validator(mode="after")
    def _some_and_different(self) -> CensusSettings:
        for name in ("groups", "models"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{name} must be different from each other and not empty")
        return self


@functools.lru_cache(maxsize=1)
def splits_of(path: str, group: int) -> dict[str, Split]:
    """Returns the parts of a file for a group, read once per process."""
    return encode(read_table(Path(path)), group)


def sample_space(model: str, hp: Any) -> dict[str, Any]:
    """Draws a model's settings: hyper-parameters of all models, and those that only this model has.

    A search tries the defaults first.

    Args:
        model: its name.
        hp: KerasTuner's HyperParameters.

    Example:
        >>> from tfr_moe.tuning import keras_tuner
        >>> sample_space("cross_stitch", keras_tuner.HyperParameters())
        {'learning_rate': 0.002, 'tower_units': 8, 'dropout': 0.0, 'stitch_self_weight': 0.9}
    """
    shared = {
        "learning_rate": hp.Float("learning_rate", 3e-4, 1e-2, sampling="log", default=2e-3),
        "tower_units": hp.Choice("tower_units", [8, 16, 32]),
        "dropout": hp.Choice("dropout", [0.0, 0.2, 0.4]),
    }
    return {**shared, **_MODEL_SPACE.get(model, lambda _: {})(hp)}


@functools.cache
def _sizes_of_budget(
    model: str, width: int, expert_units: int, tower_units: int, num_experts: int | None
) -> dict[str, Any]:
    reference = {"hidden_dims": [expert_units], "tower_hidden_dims": [8], "num_experts": 8}
    budget = parameter_count("mmoe", width, 2, **reference)
    experts = {} if num_experts is None else {"num_experts": num_experts}
    return match_budget(
        model,
        budget,
        width,
        2,
        hidden_dims=[expert_units],
        tower_hidden_dims=[tower_units],
        **experts,
    )


def layer_settings(
    settings: CensusSettings, model: str, width: int, chosen: dict[str, Any]
) -> dict[str, Any]:
    """Returns the arguments of a model's layer, as wide as the parameter budget allows.

    The budget is the size of MMoE with 8 experts of `expert_units` and towers of 8 units.
    Tensor-Factorization gets the width of Single-Task, and therefore fewer parameters: within the
    budget its layer would be tens of times wider than that of the other models.

    Args:
        settings: of the study.
        model: its name.
        width: number of inputs.
        chosen: the result of `sample_space`.
    """
    sized_as = "single_task" if model == "tensor_factorization" else model
    sizes = _sizes_of_budget(
        sized_as, width, settings.expert_units, chosen["tower_units"], chosen.get("num_experts")
    )
    others: dict[str, Any] = {
        name: chosen[name] for name in ("l2_weight", "stitch_self_weight") if name in chosen
    }
    if "rank" in chosen:
        others["tensor_ranks"] = (chosen["rank"], chosen["rank"], 2)
    return {**sizes, **others, "dropout": chosen["dropout"]}


def auc(y: np.ndarray, logits: np.ndarray) -> list[float]:
    """Returns the area under the ROC curve of each task; y and logits are [n, tasks].

    Example:
        >>> auc(np.array([[0.0], [1.0], [1.0]]), np.array([[0.1], [0.1], [0.4]]))
        [0.75]
    """
    return [float(roc_auc_score(y[:, k], logits[:, k])) for k in range(y.shape[1])]


class BestEpoch(tf.keras.callbacks.Callback):
    """Restores the weights of the epoch with the best AUC of the first task; stops early.

    Args:
        validation: the part to evaluate on.
        patience: epochs without improvement after which training stops.
    """

    def __init__(self, validation: Split, patience: int):
        super().__init__()
        self._x = tf.constant(validation.x)
        self._y = validation.y
        self._patience = patience
        self.epoch, self.auc = 0, [0.0, 0.0]
        self._weights: list[np.ndarray] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Evaluates the epoch."""
        values = auc(self._y, self.model(self._x).numpy())
        if values[0] > self.auc[0]:
            self.epoch, self.auc, self._weights = epoch + 1, values, self.model.get_weights()
        elif epoch + 1 - self.epoch >= self._patience:
            self.model.stop_training = True

    def on_train_end(self, logs: Any = None) -> None:
        """Restores the best epoch."""
        self.model.set_weights(self._weights)


def train(
    settings: CensusSettings,
    model: str,
    chosen: dict[str, Any],
    parts: dict[str, Split],
    seed: int,
    evaluated: tuple[str, ...] = PARTS[1:],
) -> Result:
    """Trains a model once and evaluates its best epoch.

    Returns:
        AUC of both tasks by part, the best epoch and the number of parameters.
    """
    tf.keras.backend.clear_session()
    tf.keras.utils.set_random_seed(seed)
    width = parts["train"].x.shape[1]
    layer = MULTITASK[model](2, seed=seed, **layer_settings(settings, model, width, chosen))
    inputs = tf.keras.Input([width])
    network = tf.keras.Model(inputs, logits_of(layer(inputs)))
    loss = tf.keras.losses.BinaryCrossentropy(from_logits=True)
    network.compile(tf.keras.optimizers.Adam(chosen["learning_rate"]), loss)
    create_training_variables(network)
    best = BestEpoch(parts["validation"], settings.patience)
    network.fit(
        parts["train"].x,
        parts["train"].y,
        batch_size=settings.batch_size,
        epochs=settings.epochs,
        callbacks=[best],
        verbose=0,
    )
    scores = {name: auc(parts[name].y, network(parts[name].x).numpy()) for name in evaluated}
    parameters = int(sum(np.prod(weight.shape) for weight in layer.trainable_weights))
    return {**scores, "best_epoch": best.epoch, "parameters": parameters}


def run_one(settings: CensusSettings, path: str, job: Job) -> Result:
    """Runs a job of the tables: `group`, `model`, `chosen` and `seed`."""
    parts = splits_of(path, job["group"])
    return train(settings, job["model"], job["chosen"], parts, job["seed"])


def tune_one(settings: CensusSettings, path: str, job: Job) -> Result:
    """Tunes one model on one group on the validation part.

    Args:
        settings: `trials` is the budget, equal for all models.
        path: the data file.
        job: `group` and `model`.

    Returns:
        `chosen`: the settings with the best validation AUC of the main task; `trials`: all of them.
    """
    model, parts = job["model"], splits_of(path, job["group"])
    trials: list[dict[str, Any]] = []

    class Search(keras_tuner.RandomSearch):
        def run_trial(self, trial: Any, *args: Any, **kwargs: Any) -> float:
            chosen = sample_space(model, trial.hyperparameters)
            seed = _TUNING_SEEDS + len(trials)
            result = train(settings, model, chosen, parts, seed, evaluated=("validation",))
            trials.append({"chosen": chosen, "validation": result["validation"]})
            return result["validation"][0]

    # A search is short: an interrupted one starts again, and its files are discarded.
    with tempfile.TemporaryDirectory() as folder:
        search = Search(
            objective=keras_tuner.Objective("default_objective", "max"),
            max_trials=settings.trials,
            seed=settings.tuning_seed,
            directory=folder,
        )
        search.search(verbose=0)
        best = search.oracle.get_best_trials(1)[0]
        chosen = sample_space(model, best.hyperparameters)
    return {"chosen": chosen, "trials": trials}
