"""Data-set folders, and their records as `tf.data` for TFR's pipelines."""

from tfr_moe.data.builder import ElwcDatasetBuilder
from tfr_moe.data.folder import DataFolder

__all__ = ["DataFolder", "ElwcDatasetBuilder"]
