"""`lambdamart`: gradient-boosted trees under LambdaRank gradients (Burges 2010), by LightGBM."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfr_moe.baselines.library import Fitted, Report, library, merged, whole_grades
from tfr_moe.baselines.rows import Rows
from tfr_moe.errors import UserError

FILE = "model.txt"
DEFAULTS: dict[str, Any] = {
    "num_iterations": 1000,
    "early_stopping_round": 50,
    "learning_rate": 0.05,
    "num_leaves": 31,
    "min_data_in_leaf": 20,
    "metric": "ndcg",
    "eval_at": [10],
}
_FIXED = ("objective", "seed", "num_threads")
_MOST = 30  # LightGBM's table of gains ends there
_LINES = 50


class LambdaMART:
    """A fitted LightGBM booster. See `tfr_moe.baselines.library.Ranker`."""

    def __init__(self, booster: Any):
        self._booster = booster

    def predict(self, values: NDArray[np.float32]) -> NDArray[np.floating[Any]]:
        """Rows [T, columns] -> scores [T]."""
        return self._booster.predict(values)

    def save(self, path: Path) -> None:
        """Writes LightGBM's own text format, the trees up to the best round."""
        self._booster.save_model(str(path), num_iteration=self._booster.best_iteration)


def load(path: Path) -> LambdaMART:
    """Reads what `LambdaMART.save` wrote."""
    return LambdaMART(library("lightgbm", "LightGBM").Booster(model_file=str(path)))


def fit(
    train: Rows, validation: Rows, parameters: Mapping[str, Any], seed: int, report: Report
) -> Fitted:
    """Boosts until the validation NDCG no longer improves.

    Lists with nothing relevant count 1 in LightGBM's own NDCG, which is used for stopping alone.

    Args:
        train: the training rows, binned by LightGBM block by block.
        validation: rows that decide when to stop.
        parameters: of LightGBM by its own names, above `DEFAULTS`.
        seed: of LightGBM.
        report: told of the progress.

    Raises:
        UserError: for labels or parameters that LightGBM does not take.
    """
    lightgbm = library("lightgbm", "LightGBM")
    settings = {
        **merged(DEFAULTS, parameters, _FIXED),
        "objective": "lambdarank",
        "seed": seed,
        "deterministic": True,
        "force_col_wise": True,
        "verbosity": -1,
    }
    rounds, patience = settings.pop("num_iterations"), settings.pop("early_stopping_round")

    class Blocks(lightgbm.Sequence):  # type: ignore[name-defined]
        """Rows of a map, read when LightGBM asks for them."""

        batch_size = 1 << 14

        def __init__(self, values: Any):
            self.values = values

        def __getitem__(self, at: Any) -> Any:
            return np.asarray(self.values[at], np.float64)

        def __len__(self) -> int:
            return len(self.values)

    def dataset(rows: Rows, reference: Any = None) -> Any:
        return lightgbm.Dataset(
            Blocks(rows.values),
            label=whole_grades(rows.labels, _MOST, "lambdamart"),
            weight=rows.weights if rows.weighted else None,
            group=rows.sizes,
            reference=reference,
            feature_name=[f"column_{i}" for i in range(len(rows.columns))],
            categorical_feature=[i for i, c in enumerate(rows.columns) if c.size is not None],
            params=settings,
        )

    training = dataset(train)
    history: dict[str, Any] = {}
    callbacks = [
        lightgbm.early_stopping(patience, first_metric_only=True, verbose=False),
        lightgbm.record_evaluation(history),
        _progress(report, rounds),
    ]
    try:
        booster = lightgbm.train(
            settings,
            training,
            num_boost_round=rounds,
            valid_sets=[dataset(validation, training)],
            valid_names=["validation"],
            callbacks=callbacks,
        )
    except lightgbm.basic.LightGBMError as error:
        raise UserError(f"LightGBM refuses: {' '.join(str(error).split())}") from error
    values = history["validation"]
    best_round = booster.best_iteration or booster.current_iteration()
    best = {f"val_{name.replace('@', '_')}": of[best_round - 1] for name, of in values.items()}
    leaves = sum(tree["num_leaves"] for tree in booster.dump_model()["tree_info"])
    return Fitted(LambdaMART(booster), len(next(iter(values.values()))), best_round, best, leaves)


def _progress(report: Report, rounds: int) -> Any:
    def callback(env: Any) -> None:
        done = env.iteration + 1
        if done % _LINES == 0:
            values = ", ".join(
                f"{result[1]} {result[2]:.4f}" for result in env.evaluation_result_list
            )
            report(f"round {done} of at most {rounds}: {values}")

    return callback
