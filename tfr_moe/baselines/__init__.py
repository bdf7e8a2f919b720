"""Rankers of well-kept libraries, trained on the same data and judged like any other run.

`lambdamart` (LightGBM), `xgboost` and `svm_rank` (scikit-learn), of the extra `baselines`.
"""

from tfr_moe.baselines.run import BaselineRun, load_baseline, train_any, train_baseline

__all__ = ["BaselineRun", "load_baseline", "train_any", "train_baseline"]
