"""Data-set folders, and their records as `tf.data` for TFR's pipelines."""

from tfr_moe.data.builder import ElwcDatasetBuilder
from tfr_moe.data.cache import (
    SPLITS,
    CachedDatasetBuilder,
    ParsedSplit,
    cached_builder,
    dataset_builder,
    in_memory,
    map_split,
    parse_split,
    write_parsed,
)
from tfr_moe.data.folder import DataFolder, open_data

__all__ = [
    "SPLITS",
    "CachedDatasetBuilder",
    "DataFolder",
    "ElwcDatasetBuilder",
    "ParsedSplit",
    "cached_builder",
    "dataset_builder",
    "in_memory",
    "map_split",
    "open_data",
    "parse_split",
    "write_parsed",
]
