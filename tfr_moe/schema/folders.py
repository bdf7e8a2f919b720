"""Folders of data sets: names of their files, days, the table of query categories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any, TypeAlias

from tfr_moe.errors import UserError
from tfr_moe.schema.feature_schema import FeatureSchema
from tfr_moe.utils.digests import write_digests
from tfr_moe.utils.io import read_json

SCHEMA_FILE = "schema.json"
"""File of a data set with its `FeatureSchema`."""
MANIFEST_FILE = "manifest.json"
"""File of a data set with the counts of its build."""
STATISTICS_FILE = "statistics.json"
"""File of a data set with the statistics of its training lists."""
QUERY_CATEGORIES_FILE = "query_categories.json"
"""File of a data set with the categories of queries by clicks."""
SPLITS = ("train", "validation", "test")
"""The splits of a data set."""

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


def write_manifest(
    folder: Path, values: Mapping[str, Any], others: Iterable[str] = ()
) -> dict[str, Any]:
    """Writes the manifest of a data set or run, with digests of its files and of `others` in it.

    Returns its content.
    """
    names = [*description_files(folder), *shard_files(folder), *others]
    return write_digests(folder, MANIFEST_FILE, values, names)


QueryCategories: TypeAlias = Mapping[str, tuple[str, str]]
"""Query -> the parent and the child that were clicked most, of `from: clicked_in_training`."""


def parse_day(text: str, name: str) -> date:
    """Returns the date of `YYYY-MM-DD`; a UserError with the `name` of the option otherwise."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = None
    if day is None or day.isoformat() != text:
        raise UserError(f"{name}: must be a day YYYY-MM-DD, got {text!r}")
    return day


def day_folder(data: str | Path, day: str) -> Path:
    """Returns the folder of a day in a data set by days."""
    parse_day(day, "append")
    if Path(data, MANIFEST_FILE).is_file():
        raise UserError(
            f"data {data}: is a data set, not a data set by days; choose another folder"
        )
    return Path(data, DAYS_FOLDER, day)


def days_of(data: str | Path, replacing: str | None = None) -> dict[str, Path]:
    """Returns day -> folder of a data set by days, in the order of time.

    A day that is `replacing` its earlier lists is left out. Raises a UserError if a day is absent
    because its replacement was interrupted.
    """
    days = Path(data, DAYS_FOLDER)
    for path in days.glob(".*.old"):
        day = path.name[1:-4]
        if day != replacing and not (days / day).exists():
            raise UserError(f"data {data}: the replacement of {day} was interrupted; repeat it")
    folders = sorted(path.parent for path in days.glob(f"[!.]*/{MANIFEST_FILE}"))
    for path in folders:
        parse_day(path.name, f"data {data}, {DAYS_FOLDER}/{path.name}")
    return {path.name: path for path in folders if path.name != replacing}


def days_of_window(days: dict[str, Path], window: str, until: str | None = None) -> dict[str, Path]:
    """Returns the days of a window, such as `30d`, that ends with a day, by default the newest."""
    number = window[:-1]
    if not (window.endswith("d") and number.isascii() and number.isdigit() and int(number) > 0):
        raise UserError(f"window: must be a number of days such as 30d, got {window!r}")
    last = until or max(days)
    end = parse_day(last, "until")
    if last not in days:
        raise UserError(f"until: there is no day {last}; the newest is {max(days)}")
    first = end - timedelta(days=min(int(number), end.toordinal()) - 1)
    return {day: path for day, path in days.items() if first.isoformat() <= day <= last}


def check_same_schema(days: dict[str, Path], schema: FeatureSchema, name: str) -> None:
    """Raises a UserError for the first day whose schema differs from that of `name`."""
    for day, path in days.items():
        other = FeatureSchema.load(path / SCHEMA_FILE)
        if other != schema:
            what = _difference(schema.as_dict(), other.as_dict())
            raise UserError(
                f"schema of {name}: {what} differs from that of {day}; all days have one schema"
            )


def _difference(one: dict[str, Any], other: dict[str, Any]) -> str:
    """Names the first entry or feature in which two schemas differ."""
    features = [{f["name"]: f for f in schema.get("features", ())} for schema in (one, other)]
    for name in {**features[0], **features[1]}:
        if features[0].get(name) != features[1].get(name):
            return f"feature {name!r}"
    names = {**one, **other}
    return next((repr(n) for n in names if n != "features" and one.get(n) != other.get(n)), "order")


def query_categories(folder: str | Path, schema: FeatureSchema) -> QueryCategories:
    """Returns the table of a data set or run; an empty one where the schema needs none."""
    if not schema.by_clicks:
        return {}
    path = Path(folder, QUERY_CATEGORIES_FILE)
    if not path.is_file():
        raise UserError(f"{path}: is missing; build the data set again")
    table = read_json(path, dict[str, tuple[str, str]])
    return {query: (parent, child) for query, (parent, child) in table.items()}
