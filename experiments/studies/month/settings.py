"""Settings of the simulated month, and the folders of its days."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, model_validator

from experiments.common.settings import StudySettings
from experiments.studies.month.log import LogOptions, day_name

WAYS = ("once", "scratch", "warm")
METRICS = ("ndcg_10", "session_auc")
MODEL: dict[str, Any] = {
    "model": "adv_hsc_moe",
    "expert_hidden_dims": [32, 16],
    "embedding_dim": 8,
    "num_experts": 6,
    "top_k": 2,
    "num_adversarial": 1,
    "batch_size": 64,
    "learning_rate": 3e-3,
}


class MonthSettings(StudySettings):
    """What is generated and trained.

    Attributes:
        runs: seeds of the models; all have the same logs.
        days: daily logs after the first window.
        window: days of the first window, and of each later one.
        lists: of a day; half of them, the latest, are its test lists, a tenth are for validation.
        broken: which of the daily logs has prices in cents, from 1.
        epochs: of a run from scratch, the best of which is used.
        warm_epochs: of a warm start.
        margin: of the publish gate.
        with_settings: settings that override those of the model.
    """

    runs: int = Field(5, ge=1)
    days: int = Field(28, ge=2)
    window: int = Field(7, ge=1)
    lists: int = Field(800, ge=20)
    broken: int = Field(18, ge=1)
    epochs: int = Field(4, ge=1)
    warm_epochs: int = Field(1, ge=1)
    margin: float = Field(0.01, gt=0)
    with_settings: dict[str, Any] = Field(default_factory=dict)

    SIZES: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        "small": {"runs": 2, "days": 3, "window": 2, "lists": 60, "broken": 2, "epochs": 1},
    }
    MAY_GROW: ClassVar[frozenset[str]] = frozenset({"runs"})

    @model_validator(mode="after")
    def _check_broken(self) -> MonthSettings:
        if self.broken > self.days:
            raise ValueError(f"broken must be at most days={self.days}")
        return self

    @property
    def first(self) -> int:
        """Index of the last day of the first window, whose run is the first one."""
        return self.window - 1

    @property
    def scored(self) -> range:
        """Indices of the daily logs; the run of the day before is scored on each."""
        return range(self.window, self.window + self.days)

    @property
    def broken_day(self) -> int:
        """Index of the day with prices in cents."""
        return self.first + self.broken

    def log(self) -> LogOptions:
        """Options of the logs."""
        return LogOptions(self.window + self.days, self.lists, self.broken_day)


class Folders:
    """Where the parts of a study are.

    Args:
        out: folder of the study.

    Attributes:
        out: the same.
        incoming: days that are built and not accepted.
        data: the accepted days.
        corrected: the broken day with the right prices.
        broken: what training on the broken day makes.
    """

    def __init__(self, out: Path):
        self.out = out
        self.incoming, self.data = out / "incoming", out / "data"
        self.corrected, self.broken = out / "corrected", out / "broken"

    def lists(self, day: int) -> Path:
        """The data set of a day with the right prices, accepted or not."""
        paths = [of_day(root, day) for root in (self.corrected, self.data, self.incoming)]
        return next(path for path in paths if path.is_dir())

    def window(self, day: int) -> Path:
        """The data set of the window that ends on a day, if the day was accepted."""
        return self.out / "windows" / day_name(day)

    def run(self, way: str, seed: int, day: int) -> Path:
        """The run of a day."""
        return self.out / "runs" / f"{way}-{seed}" / day_name(day)

    def scores(self, way: str, seed: int, day: int) -> Path:
        """The metrics of each test list of a day, by the newest run of the day before."""
        return self.out / "scores" / f"{way}-{seed}-{day_name(day)}.npz"


def of_day(root: Path, day: int) -> Path:
    """The folder of a day in a data set by days.

    Example:
        >>> of_day(Path("data"), 0).as_posix()
        'data/days/2024-06-01'
    """
    return root / "days" / day_name(day)
