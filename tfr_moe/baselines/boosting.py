"""`xgboost`: gradient-boosted trees under rank:pairwise or rank:ndcg, by XGBoost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfr_moe.baselines.library import Fitted, Report, library, merged, whole_grades
from tfr_moe.baselines.rows import Rows
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
_MOST = 31
_LINES = 50


class XGBoostRanker:
    """A fitted XGBoost booster. See `tfr_moe.baselines.library.Ranker`."""

    def __init__(self, booster: Any):
        self._booster = booster

    def predict(self, values: NDArray[np.float32]) -> NDArray[np.floating[Any]]:
        """Rows [T, columns] -> scores [T]."""
        return self._booster.inplace_predict(values)

    def save(self, path: Path) -> None:
        """Writes XGBoost's own binary format."""
        self._booster.save_model(str(path))


def load(path: Path) -> XGBoostRanker:
    """Reads what `XGBoostRanker.save` wrote."""
    booster = library("xgboost", "XGBoost").Booster()
    booster.load_model(str(path))
    return XGBoostRanker(booster)


def fit(
    train: Rows, validation: Rows, parameters: Mapping[str, Any], seed: int, report: Report
) -> Fitted:
    """Boosts until the validation NDCG no longer improves.

    XGBoost knows weights of lists only: a list weighs the mean of its items' weights.

    Args:
        train: the training rows, sketched by XGBoost block by block.
        validation: rows that decide when to stop.
        parameters: of XGBoost by its own names, above `DEFAULTS`; `objective` is rank:pairwise or rank:ndcg.
        seed: of XGBoost.
        report: told of the progress.

    Raises:
        UserError: for labels or parameters that XGBoost does not take.
    """
    xgboost = library("xgboost", "XGBoost")
    settings = {**merged(DEFAULTS, parameters, _FIXED), "seed": seed}
    if settings["objective"] not in OBJECTIVES:
        raise UserError(
            f"library_parameters: objective must be {' or '.join(OBJECTIVES)}, "
            f"got {settings['objective']!r}"
        )
    rounds = settings.pop("num_boost_round")
    patience = settings.pop("early_stopping_rounds")

    class Blocks(xgboost.DataIter):  # type: ignore[name-defined]
        """Hands out blocks of whole lists."""

        def __init__(self, rows: Rows):
            super().__init__()
            self.rows = rows
            self.grades = whole_grades(rows.labels, _MOST, "xgboost")
            self.list_of_row = np.repeat(np.arange(len(rows.sizes)), rows.sizes)
            self.reset()

        def next(self, input_data: Any) -> bool:
            at = next(self.left, None)
            if at is None:
                return False
            lists = self.list_of_row[at]
            weights = None
            if self.rows.weighted:
                totals = np.bincount(lists - lists[0], self.rows.weights[at])
                weights = totals / np.bincount(lists - lists[0])
            input_data(
                data=np.asarray(self.rows.values[at]),
                label=self.grades[at],
                qid=lists,
                weight=weights,
                feature_types=["q" if c.size is None else "c" for c in self.rows.columns],
            )
            return True

        def reset(self) -> None:
            self.left = self.rows.blocks()

    class Progress(xgboost.callback.TrainingCallback):  # type: ignore[name-defined]
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            if (epoch + 1) % _LINES == 0:
                values = ", ".join(f"{k} {v[-1]:.4f}" for k, v in evals_log["validation"].items())
                report(f"round {epoch + 1} of at most {rounds}: {values}")
            return False

    history: dict[str, Any] = {}
    try:
        training = xgboost.QuantileDMatrix(Blocks(train), enable_categorical=True)
        judged = xgboost.QuantileDMatrix(Blocks(validation), ref=training, enable_categorical=True)
        stopping = xgboost.callback.EarlyStopping(rounds=patience, save_best=True)
        booster = xgboost.train(
            settings,
            training,
            num_boost_round=rounds,
            evals=[(judged, "validation")],
            evals_result=history,
            callbacks=[stopping, Progress()],
            verbose_eval=False,
        )
    except xgboost.core.XGBoostError as error:
        raise UserError(f"XGBoost refuses: {str(error).splitlines()[0]}") from error
    values = history["validation"]
    best_round = booster.num_boosted_rounds()
    best = {f"val_{name.replace('@', '_')}": of[best_round - 1] for name, of in values.items()}
    leaves = sum(tree.count("leaf=") for tree in booster.get_dump())
    return Fitted(
        XGBoostRanker(booster), len(next(iter(values.values()))), best_round, best, leaves
    )
