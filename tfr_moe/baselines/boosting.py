"""`xgboost`: gradient-boosted trees under rank:pairwise or rank:ndcg, by XGBoost."""

from __future__ import annotations

import json
import re
import warnings
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

FILE = "model.ubj"
OBJECTIVES = ("rank:pairwise", "rank:ndcg")
DEFAULTS: dict[str, Any] = {
    "objective": "rank:pairwise",
    "num_boost_round": 1000,
    "early_stopping_rounds": 50,
    "eta": 0.1,
    "max_depth": 6,
    "tree_method": "hist",
    "eval_metric": "ndcg@10",
}
_FIXED = ("seed",)
_TRAINING = ("num_boost_round", "early_stopping_rounds")  # arguments, not parameters
_MAX_GRADE = 31


class XGBoostRanker:
    """A fitted XGBoost booster. See `tfr_moe.baselines.rows.RowRanker`."""

    def __init__(self, booster: Any):
        self._booster = booster

    def predict(self, values: NDArray[np.float32]) -> NDArray[np.floating[Any]]:
        """Rows [T, columns] -> scores [T]."""
        return self._booster.inplace_predict(values)

    def graph(self) -> Forest:
        """The trees of `gbtree` up to the best round as TensorFlow operations."""
        learner = json.loads(self._booster.save_raw("json"))["learner"]
        booster = learner["gradient_booster"]
        # From XGBoost 3.4 on, dropout is an option of gbtree.
        kind = "dart" if "weight_drop" in booster.get("model", {}) else booster["name"]
        if kind != "gbtree":
            raise UserError(f"xgboost: trees of the booster {kind} cannot be exported")
        roots = map(json.loads, self._booster.get_dump(dump_format="json"))
        # A number, from XGBoost 3.1 on a list of one.
        offset = float(learner["learner_model_param"]["base_score"].strip("[]"))
        return Forest(roots, _node, offset)

    def save(self, path: Path) -> None:
        """Writes XGBoost's own binary format."""
        self._booster.save_model(str(path))


def _node(form: dict[str, Any]) -> Node:
    """Reads a node of XGBoost's JSON."""
    if "leaf" in form:
        return Node(form["leaf"])
    by_number = {child["nodeid"]: child for child in form["children"]}
    children = by_number[form["yes"]], by_number[form["no"]]
    column, missing_left = int(form["split"][1:]), form["missing"] == form["yes"]
    condition = form["split_condition"]
    if isinstance(condition, list):
        return Node(0.0, children, column, categories=(*condition,), missing_left=missing_left)
    # Numbers below the condition go left, so those up to the float32 before it.
    threshold = float(np.nextafter(np.float32(condition), np.float32(-np.inf)))
    return Node(0.0, children, column, threshold, missing_left=missing_left)


def load(path: Path, columns: Sequence[Column]) -> XGBoostRanker:
    """Reads a file of `XGBoostRanker.save`."""
    booster = library("xgboost", "XGBoost").Booster()
    booster.load_model(str(path))
    return XGBoostRanker(booster)


def settings_of(parameters: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Merges XGBoost parameters into `DEFAULTS` and checks them by training on two rows."""
    xgboost = library("xgboost", "XGBoost")
    settings = {**merged(DEFAULTS, parameters, _FIXED), "seed": seed}
    if settings["objective"] not in OBJECTIVES:
        raise UserError(
            f"library_parameters: objective must be {' or '.join(OBJECTIVES)}, "
            f"Received: {settings['objective']!r}"
        )
    tried = {name: value for name, value in settings.items() if name not in _TRAINING}
    rows = xgboost.DMatrix(np.zeros((2, 1)), label=[0, 1], qid=[0, 0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            xgboost.train({**tried, "verbosity": 1}, rows, num_boost_round=1)
        except xgboost.core.XGBoostError as error:
            raise UserError(f"XGBoost: {str(error).splitlines()[0]}") from error
    unused = [re.search(r"Parameters: \{(.*)\} are not used", str(one.message)) for one in caught]
    names = [name for match in unused if match for name in re.findall(r'"(.*?)"', match[1])]
    reject_unknown(names, "XGBoost")
    return settings


def fit(train: Rows, validation: Rows, settings: Mapping[str, Any], log: Log) -> Fitted:
    """Boosts until XGBoost's validation NDCG no longer improves.

    XGBoost supports weights of lists only: a list gets the mean weight of its items. It bins the
    rows without a copy of their numbers.
    """
    xgboost = library("xgboost", "XGBoost")
    parameters = dict(settings)
    rounds, patience = map(parameters.pop, _TRAINING)

    def matrix(rows: Rows, reference: Any = None) -> Any:
        weights = None
        if rows.weighted:
            starts = np.cumsum(rows.sizes) - rows.sizes
            weights = np.add.reduceat(rows.weights, starts, dtype=np.float64) / rows.sizes
        return xgboost.QuantileDMatrix(
            rows.values,
            whole_grades(rows.labels, _MAX_GRADE, "xgboost"),
            weight=weights,
            group=rows.sizes,
            feature_types=["q" if column.size is None else "c" for column in rows.columns],
            ref=reference,
            enable_categorical=True,
        )

    class Progress(xgboost.callback.TrainingCallback):  # type: ignore[name-defined]
        rounds = 0

        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            self.rounds = epoch + 1
            values = {name: series[-1] for name, series in evals_log["validation"].items()}
            log_round(log, self.rounds, rounds, values, "XGBoost")
            return False

    try:
        training = matrix(train)
        progress = Progress()
        stopping = xgboost.callback.EarlyStopping(rounds=patience, save_best=True)
        booster = xgboost.train(
            parameters,
            training,
            num_boost_round=rounds,
            evals=[(matrix(validation, training), "validation")],
            callbacks=[progress, stopping],
            verbose_eval=False,
        )
    except xgboost.core.XGBoostError as error:
        raise UserError(f"XGBoost: {str(error).splitlines()[0]}") from error
    leaves = sum(tree.count("leaf=") for tree in booster.get_dump())
    return Fitted(XGBoostRanker(booster), progress.rounds, booster.num_boosted_rounds(), leaves)
