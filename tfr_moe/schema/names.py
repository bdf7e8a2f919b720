"""Names of files in a data set and of columns in its records."""

from __future__ import annotations

from pathlib import Path

MASK = "example_list_mask"
PADDING_LABEL = -1.0
PACKED = {"context": "context_numeric", "example": "example_numeric"}
PAIR_SEPARATOR = " > "

# The data-set folder.
SCHEMA_FILE = "schema.json"
MANIFEST_FILE = "manifest.json"
STATISTICS_FILE = "statistics.json"
QUERY_CATEGORIES_FILE = "query_categories.json"
SPLITS = ("train", "validation", "test")

# A data set by days, and what merges in one of its days.
DAYS_FOLDER = "days"
MOMENTS_FILE = "counts/moments.json"


def counts_file(feature: str) -> str:
    """Returns the path of the counts of all IDs of a feature in the data set of a day."""
    return f"counts/{feature}.tsv"


def vocabulary_file(feature: str) -> str:
    """Returns the path of the vocabulary of a feature in a data-set folder."""
    return f"vocabulary/{feature}.txt"


def shard_file(split: str, shard: int, num_shards: int) -> str:
    """Returns the name of a TFRecord file, such as `train-00000-of-00008.tfrecord.gz`."""
    return f"{split}-{shard:05d}-of-{num_shards:05d}.tfrecord.gz"


def description_files(folder: Path) -> list[str]:
    """The paths of schema, statistics, vocabularies and categories inside a data-set folder."""
    vocabularies = sorted(path.name for path in folder.glob("vocabulary/*.txt"))
    categories = [path.name for path in folder.glob(QUERY_CATEGORIES_FILE)]
    names = [f"vocabulary/{name}" for name in vocabularies]
    return [SCHEMA_FILE, STATISTICS_FILE, *names, *categories]


def shard_files(folder: Path, split: str = "*") -> list[str]:
    """The sorted names of the TFRecord files of a split, or of all splits, in a folder."""
    return sorted(path.name for path in folder.glob(f"{split}-*-of-*.tfrecord.gz"))


def counts_files(folder: Path) -> list[str]:
    """The paths of the files of a day that merge with those of others; none in other data sets."""
    return sorted(f"counts/{path.name}" for path in folder.glob("counts/*"))
