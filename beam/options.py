"""What a build can be asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfr_moe.errors import UserError


@dataclass(frozen=True)
class BuildOptions:
    """The options of `build`.

    Attributes:
        source: name of a source, such as `search-logs`.
        input: a path or glob pattern, in any file system that Beam knows.
        schema: path of the schema, YAML or JSON; None where the source knows its own.
        out: the data-set folder to make. Workers write into it, so it must be on a file system that
            they share.
        split: `time` (earliest lists for training, latest for the test) or `hash` (of the list id);
            None is `time` where the schema names a time, else `hash`.
        validation_fraction: share of the lists for validation.
        test_fraction: share of the lists for the test.
        max_list_size: longer lists keep the items shown first; between 1 and 1000.
        min_list_size: shorter lists are cut. 1 keeps every list.
        num_shards: files of the training split, the other splits in proportion; None is 8, or more
            where files would grow beyond some 32 MB of input.
        seed: of the hashes for split, shard and order.
        overwrite: replace `out` if it exists.
        settings: options of the source, each `key=value`.
        beam_args: arguments for Beam, such as `--runner=FlinkRunner`. Without `--runner` the pipeline
            runs in this process, in memory.
    """

    source: str
    input: str
    schema: str | Path | None
    out: str | Path
    split: str | None = None
    validation_fraction: float = 0.1
    test_fraction: float = 0.1
    max_list_size: int = 200
    min_list_size: int = 1
    num_shards: int | None = None
    seed: int = 0
    overwrite: bool = False
    settings: tuple[str, ...] = ()
    beam_args: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuses values out of range.

        Raises:
            UserError: naming the option, its value and the allowed values.
        """
        for name, low, high in (
            ("validation_fraction", 0, 0.5),
            ("test_fraction", 0, 0.5),
            ("max_list_size", 1, 1000),
            ("min_list_size", 1, self.max_list_size),
            ("num_shards", 1, 99999),
        ):
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise UserError(f"{name} must be between {low} and {high}, got {value}")
        if self.validation_fraction + self.test_fraction >= 1:
            raise UserError("validation_fraction and test_fraction leave nothing for training")
        if self.split not in (None, "time", "hash"):
            raise UserError(f"split must be time or hash, got {self.split!r}")

    def shards(self, total_bytes: int) -> dict[str, int]:
        """Number of files of each split."""
        train = self.num_shards or max(8, -(-total_bytes // (32 << 20)))
        rest = 1.0 - self.validation_fraction - self.test_fraction
        return {
            "train": train,
            "validation": max(1, round(train * self.validation_fraction / rest)),
            "test": max(1, round(train * self.test_fraction / rest)),
        }

    def as_json(self) -> dict[str, Any]:
        """The options for the manifest."""
        schema = None if self.schema is None else str(self.schema)
        lists = {"settings": list(self.settings), "beam_args": list(self.beam_args)}
        return {**vars(self), "schema": schema, "out": str(self.out), **lists}
