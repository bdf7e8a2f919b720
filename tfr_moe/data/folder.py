"""A data set on disk: files, schema, vocabularies and statistics."""

from __future__ import annotations

import copy
import gzip
import shutil
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import BaseModel, FiniteFloat, NonNegativeInt

from tfr_moe.elwc.vocabularies import write_vocabulary
from tfr_moe.errors import UserError
from tfr_moe.schema import (
    MANIFEST_FILE,
    QUERY_CATEGORIES_FILE,
    SCHEMA_FILE,
    SPLITS,
    STATISTICS_FILE,
    Feature,
    FeatureSchema,
    FeatureTables,
    QueryCategories,
    Statistics,
    description_files,
    query_categories,
    shard_files,
    vocabulary_file,
)
from tfr_moe.schema.folders import DAYS_FOLDER
from tfr_moe.utils.digests import ManifestForm, check_files, digest_files, fingerprint
from tfr_moe.utils.failures import reading
from tfr_moe.utils.io import read_json, write_json

_Numbers: TypeAlias = FiniteFloat | list[FiniteFloat]


class _Split(BaseModel):
    lists: NonNegativeInt | None = None


class _Manifest(ManifestForm):
    splits: dict[str, _Split] | None = None
    notes: dict[str, Any] | None = None


class DataFolder:
    """The folder of a data set.

    Where the manifest has digests, the files must have their sizes, and schema, statistics and
    vocabularies their contents; otherwise, or if a file is missing, a UserError is raised.
    """

    splits: Mapping[str, Any] = {}
    """The splits that are parsed, see `tfr_moe.data.cached`; the others are read."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        if not self.path.is_dir():
            what = (
                "is a file; read it into a data frame, or build a data set from it"
                if self.path.exists()
                else "no such folder"
            )
            raise UserError(f"data {self.path}: {what}")
        for name in (SCHEMA_FILE, STATISTICS_FILE):
            if not (self.path / name).is_file():
                if (self.path / DAYS_FOLDER).is_dir():
                    raise UserError(f"data {self.path}: is by days; join days to a data set first")
                raise UserError(f"data {self.path}: {name} is missing; build the data set first")
        self._check_files()
        self.schema = FeatureSchema.load(self.path / SCHEMA_FILE)

    def _check_files(self, shards: Sequence[str] = ()) -> None:
        """Checks sizes, and the contents of the description and of some shards."""
        digests = self.manifest.get("files")
        if digests is None:
            for name in shards:
                _check_gzip(self.path / name)
            return
        contents = {*description_files(self.path), *shards}
        check_files(self.path, digests, "data", contents)
        for name in shard_files(self.path):
            if name not in digests:
                raise UserError(f"data {self.path}: {name} is not in {MANIFEST_FILE}; remove it")

    @cached_property
    def fingerprint(self) -> str:
        """Identifies the content of the data set, wherever it is.

        Without a manifest, the contents of schema, statistics and vocabularies and the names and
        sizes of the shards.
        """
        recorded = self.manifest.get("fingerprint")
        if recorded is not None:
            return recorded
        digests = digest_files(self.path, description_files(self.path))
        for name in shard_files(self.path):
            size = (self.path / name).stat().st_size
            digests[name] = {"bytes": size, "sha256": str(size)}
        return fingerprint(digests)

    @cached_property
    def statistics(self) -> Statistics:
        """Scope -> column -> count, mean, std, min, max over the training split."""
        return read_json(self.path / STATISTICS_FILE, dict[str, dict[str, dict[str, _Numbers]]])

    @cached_property
    def categories(self) -> QueryCategories:
        """Query -> parent and child category; empty where the schema needs none."""
        return query_categories(self.path, self.schema)

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """Counts, splits, options and versions of the build; empty if there is no manifest."""
        return read_json(self.path / MANIFEST_FILE, _Manifest) or {}

    def tables(self) -> FeatureTables:
        """Statistics and vocabulary paths, for the feature encoder."""
        paths = {}
        for feature in self.schema.features:
            if feature.has_vocabulary:
                path = self.path / vocabulary_file(feature.name)
                if not path.is_file():
                    raise UserError(
                        f"data {self.path}: vocabulary of feature {feature.name!r} is missing"
                    )
                paths[feature.name] = str(path)
        return FeatureTables(self.statistics, paths)

    def constant_features(self) -> list[str]:
        """Names of the features that have one value in all training lists.

        Numbers with a missing-value indicator and IDs with `min_count` are not among them: whether
        they are missing, or rare, may carry information.
        """
        vocabularies = self.tables().vocabularies

        def is_constant(feature: Feature) -> bool:
            if feature.kind == "numeric":
                columns = [self.statistics[feature.scope][name] for name in feature.columns]
                same = all("min" in c and c["min"] == c["max"] for c in columns)
                return same and not feature.missing_indicator
            if feature.kind != "categorical" or not feature.has_vocabulary or feature.min_count > 1:
                return False
            ids = vocabularies[feature.name]
            if not isinstance(ids, str):
                return len(ids) == 1
            with open(ids, encoding="utf-8") as file:
                return len(list(islice(file, 2))) == 1

        return [feature.name for feature in self.schema.features if is_constant(feature)]

    def files(self, split: str) -> list[str]:
        """The record files of a split, in order, after a check of their contents."""
        if split not in SPLITS:
            raise UserError(f"split {split!r} is unknown; allowed: {', '.join(SPLITS)}")
        names = shard_files(self.path, split)
        if not names:
            raise UserError(f"data {self.path}: no {split}-*.tfrecord.gz files")
        self._check_files(names)
        return [str(self.path / name) for name in names]

    def num_lists(self, split: str) -> int | None:
        """Number of lists of a split by the manifest; None without a manifest."""
        return self._count(split, "lists")

    def num_items(self, split: str) -> int | None:
        """Number of items of a split by the manifest; None without a manifest."""
        return self._count(split, "items")

    def _count(self, split: str, what: str) -> int | None:
        return (self.manifest.get("splits") or {}).get(split, {}).get(what)

    def check_lists(self, split: str) -> None:
        """Raises a UserError unless a split has a list."""
        for path in self.files(split):
            with gzip.open(path) as records:
                if records.read(1):
                    return
        raise UserError(f"data {self.path}: split {split!r} has no lists")

    @property
    def notes(self) -> dict[str, Any]:
        """Notes on how the data was made, such as that negatives were sampled."""
        return self.manifest.get("notes") or {}

    def with_statistics(self, statistics: Statistics) -> DataFolder:
        """The same data set, by which a model normalizes numerics by other statistics."""
        other = copy.copy(self)
        other.fingerprint, other.statistics = self.fingerprint, statistics
        return other

    def with_splits(self, splits: Mapping[str, Any]) -> DataFolder:
        """The same data set, some splits of which are parsed."""
        other = copy.copy(self)
        other.splits = splits
        return other

    def copy_description(self, target: Path) -> None:
        """Writes schema, statistics and vocabularies, from which a model can be rebuilt."""
        target.mkdir(parents=True, exist_ok=True)
        self.schema.save(target / SCHEMA_FILE)
        write_json(target / STATISTICS_FILE, self.statistics)
        if self.schema.by_clicks:
            write_json(target / QUERY_CATEGORIES_FILE, self.categories)
        for name, words in self.tables().vocabularies.items():
            path = target / vocabulary_file(name)
            if isinstance(words, str):
                path.parent.mkdir(exist_ok=True)
                shutil.copyfile(words, path)
            else:
                write_vocabulary(path, words)


def _check_gzip(path: Path) -> None:
    """Reads a file to its end, where gzip has a checksum."""
    with reading(str(path)), gzip.open(path) as file:
        if not path.stat().st_size:
            raise ValueError("the file is empty")
        while file.read(1 << 20):
            pass


def open_data(
    data: str | Path | DataFolder, of_frames: Mapping[str, Any] | None = None
) -> DataFolder:
    """Opens a data-set folder; returns an open data set unchanged.

    `of_frames` are arguments that describe data frames, all of which must be None.
    """
    is_file = isinstance(data, (str, Path)) and Path(data).is_file()
    for name, value in ({} if is_file else of_frames or {}).items():
        if value is not None:
            raise UserError(f"{name}: is part of the data-set folder. Received: {name}")
    return data if isinstance(data, DataFolder) else DataFolder(data)
