"""FeatureSchema, the description of a data set, and the names of its files and columns."""

from tfr_moe.schema.feature import (
    MASK,
    PACKED,
    PAIR_SEPARATOR,
    Feature,
    Hierarchy,
    Scope,
)
from tfr_moe.schema.feature_schema import FeatureSchema, FeatureTables, Statistics
from tfr_moe.schema.folders import (
    MANIFEST_FILE,
    QUERY_CATEGORIES_FILE,
    SCHEMA_FILE,
    SPLITS,
    STATISTICS_FILE,
    QueryCategories,
    description_files,
    query_categories,
    shard_file,
    shard_files,
    vocabulary_file,
    write_manifest,
)

__all__ = [
    "MANIFEST_FILE",
    "MASK",
    "PACKED",
    "PAIR_SEPARATOR",
    "QUERY_CATEGORIES_FILE",
    "SCHEMA_FILE",
    "SPLITS",
    "STATISTICS_FILE",
    "Feature",
    "FeatureSchema",
    "FeatureTables",
    "Hierarchy",
    "QueryCategories",
    "Scope",
    "Statistics",
    "description_files",
    "query_categories",
    "shard_file",
    "shard_files",
    "vocabulary_file",
    "write_manifest",
]


def __dir__() -> list[str]:
    return __all__
