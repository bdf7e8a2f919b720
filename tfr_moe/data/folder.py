"""A built data set on disk: what is where, and what the training split says."""

from __future__ import annotations

import json
import shutil
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
    vocabulary_file,
)


class DataFolder:
    """The folder that `tfr-moe build` writes.

    Args:
        path: the folder.

    Raises:
        UserError: if it is not a complete data set.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        if not self.path.is_dir():
            raise UserError(f"data {self.path}: no such folder")
        for name in (SCHEMA_FILE, STATISTICS_FILE):
            if not (self.path / name).is_file():
                raise UserError(
                    f"data {self.path}: {name} is missing; make the data set with `tfr-moe build`"
                )
        self.schema = FeatureSchema.load(self.path / SCHEMA_FILE)

    @cached_property
    def statistics(self) -> dict[str, dict[str, dict[str, float]]]:
        """Scope -> column -> count, mean, std, min, max over the training split."""
        return self._json(STATISTICS_FILE)

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """Counts, splits, options and versions of the build."""
        return self._json(MANIFEST_FILE)

    def _json(self, name: str) -> dict[str, Any]:
        try:
            return json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"data {self.path}: {name} cannot be read ({error})") from error

    def tables(self) -> FeatureTables:
        """Statistics, and the paths of the vocabularies, as the feature encoder takes them.

        Raises:
            UserError: naming the feature whose vocabulary is missing.
        """
        paths = {}
        for feature in self.schema.features:
            if feature.has_vocabulary:
                path = self.path / vocabulary_file(feature.name)
                if not path.is_file():
                    raise UserError(f"data {self.path}: no vocabulary of feature {feature.name!r}")
                paths[feature.name] = str(path)
        return FeatureTables(self.statistics, paths)

    def files(self, split: str) -> list[str]:
        """The record files of a split, in order.

        Raises:
            UserError: for an unknown split, or one without records.
        """
        if split not in SPLITS:
            raise UserError(f"split {split!r} is unknown; there are: {', '.join(SPLITS)}")
        files = sorted(str(path) for path in self.path.glob(f"{split}-*-of-*.tfrecord.gz"))
        if not files:
            raise UserError(f"data {self.path}: there are no {split}-*.tfrecord.gz files")
        return files

    def num_lists(self, split: str) -> int | None:
        """Number of lists of a split by the manifest; None where there is no manifest."""
        if not (self.path / MANIFEST_FILE).is_file():
            return None
        return self.manifest.get("splits", {}).get(split, {}).get("lists")

    @property
    def notes(self) -> dict[str, Any]:
        """What a reader of numbers on this data must know, such as that negatives were sampled."""
        if not (self.path / MANIFEST_FILE).is_file():
            return {}
        return self.manifest.get("notes", {})

    def copy_description(self, target: Path) -> None:
        """Copies all that a model needs to be rebuilt: schema, statistics and vocabularies."""
        target.mkdir(parents=True, exist_ok=True)
        for name in (SCHEMA_FILE, STATISTICS_FILE):
            shutil.copyfile(self.path / name, target / name)
        for path in self.tables().vocabularies.values():
            (target / "vocabulary").mkdir(exist_ok=True)
            shutil.copy(str(path), target / "vocabulary")
