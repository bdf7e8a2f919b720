"""A data set on disk: files, schema, vocabularies and statistics."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tfr_moe.errors import UserError
from tfr_moe.schema import (
    MANIFEST_FILE,
    SCHEMA_FILE,
    SPLITS,
    STATISTICS_FILE,
    FeatureSchema,
    FeatureTables,
    description_files,
    shard_files,
    vocabulary_file,
)
from tfr_moe.utils.digests import check_files, digest_files, fingerprint


class DataFolder:
    """The folder of a data set.

    Where the manifest has digests, the files must have their sizes, and schema, statistics and
    vocabularies their contents.

    Args:
        path: the folder.

    Raises:
        UserError: if it is not a complete data set, or not that of its manifest.
    """

    splits: Mapping[str, Any] = {}
    """Parsed splits in memory; none for a folder on disk."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        if not self.path.is_dir():
            raise UserError(f"data {self.path}: no such folder")
        for name in (SCHEMA_FILE, STATISTICS_FILE):
            if not (self.path / name).is_file():
                raise UserError(f"data {self.path}: {name} is missing; build the data set first")
        self._check_files()
        self.schema = FeatureSchema.load(self.path / SCHEMA_FILE)

    def _check_files(self, shards: Sequence[str] = ()) -> None:
        """Checks sizes, and the contents of the description and of some shards."""
        digests = self._manifest.get("files")
        if digests is None:
            return
        contents = {*description_files(self.path), *shards}
        check_files(self.path, digests, "data", contents)
        for name in shard_files(self.path):
            if name not in digests:
                raise UserError(f"data {self.path}: {name} is not in {MANIFEST_FILE}; remove it")

    def check(self) -> None:
        """Compares all files with the digests of the manifest.

        Raises:
            UserError: naming the first file that differs, or if there are no digests.
        """
        if "files" not in self._manifest:
            raise UserError(f"data {self.path}: {MANIFEST_FILE} has no digests; build it again")
        self._check_files(shard_files(self.path))

    @cached_property
    def fingerprint(self) -> str:
        """Identifies the content of the data set, wherever it is.

        Without a manifest, the contents of schema, statistics and vocabularies and the names and
        sizes of the shards.
        """
        recorded = self._manifest.get("fingerprint")
        if recorded is not None:
            return recorded
        digests = digest_files(self.path, description_files(self.path))
        for name in shard_files(self.path):
            size = (self.path / name).stat().st_size
            digests[name] = {"bytes": size, "sha256": str(size)}
        return fingerprint(digests)

    @cached_property
    def statistics(self) -> dict[str, dict[str, dict[str, float]]]:
        """Scope -> column -> count, mean, std, min, max over the training split."""
        return self._json(STATISTICS_FILE)

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """Counts, splits, options and versions of the build."""
        return self._json(MANIFEST_FILE)

    @property
    def _manifest(self) -> dict[str, Any]:
        """The manifest; empty if there is none."""
        return self.manifest if (self.path / MANIFEST_FILE).is_file() else {}

    def _json(self, name: str) -> dict[str, Any]:
        try:
            return json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"data {self.path}: {name} cannot be read ({error})") from error

    def tables(self) -> FeatureTables:
        """Statistics and vocabulary paths, for the feature encoder.

        Raises:
            UserError: naming the feature whose vocabulary is missing.
        """
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

    def files(self, split: str) -> list[str]:
        """The record files of a split, in order.

        Raises:
            UserError: for an unknown split, or one without records.
        """
        if split not in SPLITS:
            raise UserError(f"split {split!r} is unknown; allowed: {', '.join(SPLITS)}")
        files = [str(self.path / name) for name in shard_files(self.path, split)]
        if not files:
            raise UserError(f"data {self.path}: no {split}-*.tfrecord.gz files")
        return files

    def num_lists(self, split: str) -> int | None:
        """Number of lists of a split by the manifest; None without a manifest."""
        return self._manifest.get("splits", {}).get(split, {}).get("lists")

    def check_lists(self, split: str) -> None:
        """Checks that a split has a list.

        Raises:
            UserError: for an unknown split, or one without files or lists.
        """
        for path in self.files(split):
            try:
                with gzip.open(path) as records:
                    if records.read(1):
                        return
            except (OSError, EOFError) as error:
                raise UserError(f"data {path}: cannot be read ({error})") from error
        raise UserError(f"data {self.path}: split {split!r} has no lists")

    @property
    def notes(self) -> dict[str, Any]:
        """Notes on how the data was made, such as that negatives were sampled."""
        return self._manifest.get("notes", {})

    def copy_description(self, target: Path) -> None:
        """Copies schema, statistics and vocabularies, from which a model can be rebuilt."""
        target.mkdir(parents=True, exist_ok=True)
        for name in (SCHEMA_FILE, STATISTICS_FILE):
            shutil.copyfile(self.path / name, target / name)
        for path in self.tables().vocabularies.values():
            (target / "vocabulary").mkdir(exist_ok=True)
            shutil.copy(str(path), target / "vocabulary")


def open_data(data: str | Path | DataFolder) -> DataFolder:
    """Opens a data-set folder; returns an open data set unchanged.

    Raises:
        UserError: see `DataFolder`.
    """
    return data if isinstance(data, DataFolder) else DataFolder(data)
