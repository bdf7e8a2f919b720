"""An opened sweep: its folder, its settings, and the hypermodel that they describe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tfr_moe.data import DataFolder
from tfr_moe.data.parsed import SPLITS, in_memory, map_split
from tfr_moe.errors import UserError

from .config import SweepConfig, load_sweep_config
from .hypermodel import RankingHyperModel
from .records import SWEEP_FILE

CACHE_FOLDER = "cache"
WORK_FOLDER = "work"
FINISHED_FILE = "finished"


@dataclass(frozen=True)
class Plan:
    """What every process of a sweep knows.

    Attributes:
        path: the sweep's folder.
        config: its resolved settings.
        hypermodel: the space, and what turns a point of it into a run.
    """

    path: Path
    config: SweepConfig
    hypermodel: RankingHyperModel

    @classmethod
    def open(cls, path: Path) -> Plan:
        """Reads `sweep.yaml`.

        Raises:
            UserError: if there is none, or the data that it names is gone.
        """
        config = load_sweep_config(path / SWEEP_FILE)
        if config.data is None:
            raise UserError(f"sweep {path}: {SWEEP_FILE} names no data")
        folder = DataFolder(config.data)
        return cls(path, config, RankingHyperModel(folder, config.base, config.space))

    def work(self, trial_id: str) -> Path:
        """Where the training of a trial keeps its state."""
        return self.path / WORK_FOLDER / trial_id

    def load_data(self) -> None:
        """Has the hypermodel serve batches from the parsed splits, if the sweep keeps them."""
        hypermodel = self.hypermodel
        if self.config.cache and hypermodel.splits is None:
            schema = hypermodel.folder.schema
            cache = self.path / CACHE_FOLDER
            hypermodel.splits = {s: in_memory(map_split(cache, schema, s)) for s in SPLITS}
