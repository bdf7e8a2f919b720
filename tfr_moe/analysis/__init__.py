"""Analysis of trained models and of data: attention, calibration, explanations, drift."""

from tfr_moe._compat import lazy_names

# TensorFlow is slow to load.
__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "drift": ("DriftRow", "RecordedLists", "measure_drift"),
        "drift_limits": ("DriftLimits",),
    },
)
