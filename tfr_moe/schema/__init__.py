"""FeatureSchema, the description of a data set, and the names of its files and columns."""

from tfr_moe.schema.days import check_same_schema, day_folder, days_of, days_of_window
from tfr_moe.schema.feature import Feature, Hierarchy, Kind, Scope, Transform
from tfr_moe.schema.feature_schema import FeatureSchema, FeatureTables, SchemaError, Statistics
from tfr_moe.schema.names import (
    MANIFEST_FILE,
    MASK,
    MOMENTS_FILE,
    PACKED,
    PADDING_LABEL,
    PAIR_SEPARATOR,
    SCHEMA_FILE,
    SPLITS,
    STATISTICS_FILE,
    counts_file,
    counts_files,
    description_files,
    shard_file,
    shard_files,
    vocabulary_file,
)

__all__ = [
    "MANIFEST_FILE",
    "MASK",
    "MOMENTS_FILE",
    "PACKED",
    "PADDING_LABEL",
    "PAIR_SEPARATOR",
    "SCHEMA_FILE",
    "SPLITS",
    "STATISTICS_FILE",
    "Feature",
    "FeatureSchema",
    "FeatureTables",
    "Hierarchy",
    "Kind",
    "SchemaError",
    "Scope",
    "Statistics",
    "Transform",
    "check_same_schema",
    "counts_file",
    "counts_files",
    "day_folder",
    "days_of",
    "days_of_window",
    "description_files",
    "shard_file",
    "shard_files",
    "vocabulary_file",
]
