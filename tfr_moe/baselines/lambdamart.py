"""`lambdamart`: gradient-boosted trees under LambdaRank gradients (Burges 2010), by LightGBM."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfr_moe.baselines.forest import Forest, Node
from tfr_moe.baselines.rows import (
    Column,
    Fitted,
    Log,
    Rows,
    library,
    log_round,
    merged,
    reject_unknown,
    whole_grades,
)
from tfr_moe.errors import UserError

FILE = "model.txt"
DEFAULTS: dict[str, Any] = {
    "num_iterations": 1000,
    "early_stopping_round": 50,
    "learning_rate": 0.05,
    "num_leaves": 31,
    "min_data_in_leaf": 20,
    "data_random_seed": 1,  # runs of all seeds have the same bins
    "metric": "ndcg",
    "eval_at": [10],
}
_TRAINING = ("num_iterations", "early_stopping_round")  # arguments, not parameters
_FIXED = ("objective", "seed", "num_threads")
_MAX_GRADE = 30  # the end of LightGBM's table of gains


class LambdaMART:
    """A fitted LightGBM booster. See `tfr_moe.baselines.rows.RowRanker`."""

    def __init__(self, booster: Any):
        self._booster = booster

    def predict(self, values: NDArray[np.float32]) -> NDArray[np.floating[Any]]:
        """Rows [T, columns] -> scores [T]."""
        return self._booster.predict(values)

    def graph(self) -> Forest:
        """The trees up to the best round as TensorFlow operations, without linear leaves."""
        dumped = self._booster.dump_model(num_iteration=self._booster.best_iteration)
        trees = dumped["tree_info"]
        scale = 1 / len(trees) if dumped["average_output"] and trees else 1.0
        return Forest([tree["tree_structure"] for tree in trees], _node, scale=scale)

    def save(self, path: Path) -> None:
        """Writes LightGBM's own text format, the trees up to the best round."""
        self._booster.save_model(str(path), num_iteration=self._booster.best_iteration)


def load(path: Path, columns: Sequence[Column]) -> LambdaMART:
    """Reads a file of `LambdaMART.save`; a ValueError if it is truncated, which LightGBM misses."""
    if "end of parameters" not in path.read_text(encoding="utf-8"):
        raise ValueError("the file is truncated")
    return LambdaMART(library("lightgbm", "LightGBM").Booster(model_file=str(path)))


def _node(form: dict[str, Any]) -> Node:
    """Reads a node of LightGBM's `dump_model`."""
    if "leaf_coeff" in form:
        raise UserError("lambdamart: trees of linear_tree cannot be exported")
    if "leaf_value" in form:
        return Node(form["leaf_value"])
    children = form["left_child"], form["right_child"]
    if form["decision_type"] == "==":
        categories = tuple(map(int, str(form["threshold"]).split("||")))
        return Node(0.0, children, form["split_feature"], categories=categories)
    return Node(
        0.0,
        children,
        form["split_feature"],
        form["threshold"],
        missing=form["missing_type"].lower(),
        missing_left=form["default_left"],
    )


class _Messages(list[str]):
    """A logger of LightGBM that keeps its messages."""

    info = warning = list.append


def settings_of(parameters: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Merges LightGBM parameters into `DEFAULTS` and checks them by a data set of two rows."""
    lightgbm = library("lightgbm", "LightGBM")
    settings = {
        **merged(DEFAULTS, parameters, _FIXED),
        "objective": "lambdarank",
        "seed": seed,
        "deterministic": True,
        "force_col_wise": True,
        "verbosity": -1,
    }
    tried = {name: value for name, value in settings.items() if name not in _TRAINING}
    messages = _Messages()
    lightgbm.register_logger(messages)
    try:
        lightgbm.Dataset(
            np.zeros((2, 1)), label=[0, 1], group=[2], params={**tried, "verbosity": 0}
        ).construct()
    except lightgbm.basic.LightGBMError as error:
        raise UserError(f"LightGBM: {' '.join(str(error).split())}") from error
    finally:
        lightgbm.register_logger(logging.getLogger("lightgbm"))
    text = "\n".join(messages)
    reject_unknown(re.findall(r"Unknown parameter: (\S+)", text), "LightGBM")
    # An alias of a default would lose against it.
    for name, alias in re.findall(r"(\w+) is set=\S+ (\w+)=\S+ will be ignored", text):
        if name in parameters:
            raise UserError(f"library_parameters: {alias!r} is another name of {name!r}")
        settings[name] = settings.pop(alias)
    return settings


def fit(train: Rows, validation: Rows, settings: Mapping[str, Any], log: Log) -> Fitted:
    """Boosts until LightGBM's validation NDCG no longer improves.

    That NDCG, which counts lists without a relevant item as 1, is used for early stopping only.
    LightGBM bins the training rows from their memory-mapped file. With positions (`position_bias`)
    it learns a bias of each in the gradients, which the scores do not contain.
    """
    lightgbm = library("lightgbm", "LightGBM")
    parameters = dict(settings)
    rounds, patience = map(parameters.pop, _TRAINING)

    def dataset(rows: Rows, reference: Any = None) -> Any:
        return lightgbm.Dataset(
            rows.values,
            label=whole_grades(rows.labels, _MAX_GRADE, "lambdamart"),
            weight=rows.weights if rows.weighted else None,
            group=rows.sizes,
            position=rows.positions.astype(np.int32) if rows.positions.any() else None,
            reference=reference,
            feature_name=[f"column_{i}" for i in range(len(rows.columns))],
            categorical_feature=[i for i, c in enumerate(rows.columns) if c.size is not None],
            params=parameters,
        )

    def progress(env: Any) -> None:
        values = {result[1]: result[2] for result in env.evaluation_result_list}
        log_round(log, env.iteration + 1, rounds, values, "LightGBM")

    training = dataset(train)
    history: dict[str, Any] = {}
    callbacks = [
        lightgbm.early_stopping(patience, first_metric_only=True, verbose=False),
        lightgbm.record_evaluation(history),
        progress,
    ]
    try:
        booster = lightgbm.train(
            parameters,
            training,
            num_boost_round=rounds,
            valid_sets=[dataset(validation, training)],
            valid_names=["validation"],
            callbacks=callbacks,
        )
    except lightgbm.basic.LightGBMError as error:
        raise UserError(f"LightGBM: {' '.join(str(error).split())}") from error
    best_round = booster.best_iteration or booster.current_iteration()
    done = len(next(iter(history["validation"].values())))
    leaves = sum(tree["num_leaves"] for tree in booster.dump_model()["tree_info"])
    return Fitted(LambdaMART(booster), done, best_round, leaves)
