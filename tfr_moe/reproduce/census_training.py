"""One training on Census-Income, the space that is tuned, and the tuning of one model by KerasTuner."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.layers.multitask_registry import make_multitask, match_budget, parameter_count
from tfr_moe.reproduce.census_data import PARTS, Split, encode, read_table
from tfr_moe.reproduce.census_settings import CensusSettings
from tfr_moe.reproduce.runs import Job, Result

_TUNING_SEEDS = 1_000_000  # apart from those of the runs
_OWN_SPACE: dict[str, Callable[[Any], dict[str, Any]]] = {
    "l2_constrained": lambda hp: {
        "l2_weight": hp.Float("l2_weight", 1e-5, 1e-1, sampling="log", default=1e-3)
    },
    "cross_stitch": lambda hp: {"own_share": hp.Float("own_share", 0.5, 0.95, default=0.9)},
    "tensor_factorization": lambda hp: {"rank": hp.Choice("rank", [8, 16, 32, 64], default=16)},
    "omoe": lambda hp: {"num_experts": hp.Choice("num_experts", [4, 8], default=8)},
    "mmoe": lambda hp: {"num_experts": hp.Choice("num_experts", [4, 8], default=8)},
}


@functools.lru_cache(maxsize=1)
def splits_of(path: str, group: int) -> dict[str, Split]:
    """The parts of a file for a group, read once per process."""
    return encode(read_table(Path(path)), group)


def sample_space(model: str, hp: Any) -> dict[str, Any]:
    """Draws a model's settings from the space: what all have, and what is a model's own.

    A search tries the defaults first.

    Args:
        model: its name.
        hp: KerasTuner's HyperParameters.

    Example:
        >>> from tfr_moe.tuning import keras_tuner
        >>> sample_space("cross_stitch", keras_tuner.HyperParameters())
        {'learning_rate': 0.002, 'tower_units': 8, 'dropout': 0.0, 'own_share': 0.9}
    """
    shared = {
        "learning_rate": hp.Float("learning_rate", 3e-4, 1e-2, sampling="log", default=2e-3),
        "tower_units": hp.Choice("tower_units", [8, 16, 32]),
        "dropout": hp.Choice("dropout", [0.0, 0.2, 0.4]),
    }
    return {**shared, **_OWN_SPACE.get(model, lambda _: {})(hp)}


@functools.cache
def _sizes_of_budget(
    model: str, width: int, expert_units: int, tower_units: int, num_experts: int | None
) -> dict[str, Any]:
    reference = {"hidden_dims": [expert_units], "tower_hidden_dims": [8], "num_experts": 8}
    budget = parameter_count("mmoe", width, 2, **reference)
    own = {} if num_experts is None else {"num_experts": num_experts}
    return match_budget(
        model, budget, width, 2, hidden_dims=[expert_units], tower_hidden_dims=[tower_units], **own
    )


def layer_settings(
    settings: CensusSettings, model: str, width: int, chosen: dict[str, Any]
) -> dict[str, Any]:
    """Arguments of a model's layer, its hidden layer as wide as the budget of parameters allows.

    The budget is that of MMoE with 8 experts of `expert_units` and towers of 8 units. Tensor-Factorization
    has the width that Single-Task has within it, and therefore fewer parameters: it factorizes
    those. Filling the budget would give it a layer tens of times wider than anyone else's.

    Args:
        settings: of the study.
        model: its name.
        width: number of inputs.
        chosen: what `sample_space` drew.
    """
    measured = "single_task" if model == "tensor_factorization" else model
    sizes = _sizes_of_budget(
        measured, width, settings.expert_units, chosen["tower_units"], chosen.get("num_experts")
    )
    own: dict[str, Any] = {
        name: chosen[name] for name in ("l2_weight", "own_share") if name in chosen
    }
    if "rank" in chosen:
        own["tensor_ranks"] = (chosen["rank"], chosen["rank"], 2)
    return {**sizes, **own, "dropout": chosen["dropout"]}


def auc(y: np.ndarray, logits: np.ndarray) -> list[float]:
    """The area under the ROC curve of each task: y and logits [n, tasks].

    Example:
        >>> auc(np.array([[0.0], [1.0], [1.0]]), np.array([[0.1], [0.1], [0.4]]))
        [0.75]
    """
    from sklearn.metrics import roc_auc_score

    return [float(roc_auc_score(y[:, k], logits[:, k])) for k in range(y.shape[1])]


class BestEpoch(tf.keras.callbacks.Callback):
    """Keeps the weights of the epoch with the best AUC of the first task, and stops when none comes.

    Args:
        validation: the part to judge by.
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
        """Judges the epoch."""
        found = auc(self._y, self.model(self._x).numpy())
        if found[0] > self.auc[0]:
            self.epoch, self.auc, self._weights = epoch + 1, found, self.model.get_weights()
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
    judged: tuple[str, ...] = PARTS[1:],
) -> Result:
    """Trains a model once and judges its best epoch.

    Returns:
        AUC of both tasks by part, the best epoch and the number of parameters.
    """
    tf.keras.backend.clear_session()
    tf.keras.utils.set_random_seed(seed)
    width = parts["train"].x.shape[1]
    layer = make_multitask(model, 2, seed=seed, **layer_settings(settings, model, width, chosen))
    inputs = tf.keras.Input([width])
    network = tf.keras.Model(inputs, layer(inputs))
    loss = tf.keras.losses.BinaryCrossentropy(from_logits=True)
    network.compile(tf.keras.optimizers.Adam(chosen["learning_rate"]), loss)
    best = BestEpoch(parts["validation"], settings.patience)
    network.fit(
        parts["train"].x,
        parts["train"].y,
        batch_size=settings.batch_size,
        epochs=settings.epochs,
        callbacks=[best],
        verbose=0,
    )
    scores = {name: auc(parts[name].y, network(parts[name].x).numpy()) for name in judged}
    parameters = int(sum(np.prod(weight.shape) for weight in layer.trainable_weights))
    return {**scores, "best_epoch": best.epoch, "parameters": parameters}


def run_one(settings: CensusSettings, path: str, job: Job) -> Result:
    """One of the runs that the table is made of: `group`, `model`, `chosen` and `seed`."""
    parts = splits_of(path, job["group"])
    return train(settings, job["model"], job["chosen"], parts, job["seed"])


def tune_one(settings: CensusSettings, path: str, job: Job) -> Result:
    """Tunes one model on one group, by validation alone.

    Args:
        settings: `trials` is the budget, the same for each model.
        path: the data.
        job: `group` and `model`.

    Returns:
        `chosen`: the settings with the best validation AUC of the main task; `trials`: all of them.
    """
    from tfr_moe.tuning import keras_tuner

    model, parts = job["model"], splits_of(path, job["group"])
    trials: list[dict[str, Any]] = []

    class Search(keras_tuner.RandomSearch):
        def run_trial(self, trial: Any, *args: Any, **kwargs: Any) -> float:
            chosen = sample_space(model, trial.hyperparameters)
            seed = _TUNING_SEEDS + len(trials)
            found = train(settings, model, chosen, parts, seed, judged=("validation",))
            trials.append({"chosen": chosen, "validation": found["validation"]})
            return found["validation"][0]

    # A search is short, so that one which was killed begins afresh: its files are not kept.
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
