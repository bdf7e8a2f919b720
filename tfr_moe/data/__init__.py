"""Data-set folders, and their records as `tf.data` for TFR's pipelines."""

from tfr_moe._compat import lazy_names

# A missing or broken data set is reported before TensorFlow is loaded.
__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "builder": ("ElwcDatasetBuilder", "ParsedSplit", "cached"),
        "days": ("join_days",),
        "folder": ("DataFolder", "open_data"),
    },
)
