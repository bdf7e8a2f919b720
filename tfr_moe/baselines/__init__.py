"""Rankers of established libraries, trained on the same data and evaluated like any other run.

`lambdamart` (LightGBM), `xgboost` and `svm_rank` (scikit-learn); installed with
`tfr_moe[baselines]`.
"""

from tfr_moe.baselines.run import (
    MODULES,
    BaselineRun,
    keras_model,
    load_baseline,
    open_run,
    train_any,
    train_baseline,
)

__all__ = [
    "MODULES",
    "BaselineRun",
    "keras_model",
    "load_baseline",
    "open_run",
    "train_any",
    "train_baseline",
]
