"""Rankers of established libraries, trained on the same data and evaluated like any other run.

`lambdamart` (LightGBM), `xgboost` and `svm_rank` (scikit-learn); installed with
`tfr_moe[baselines]`.
"""

from tfr_moe._compat import lazy_names

__all__, __getattr__, __dir__ = lazy_names(
    __name__, {"run": ("BaselineRun", "open_run", "train_any", "train_baseline")}
)
