"""What a study is, and the registry of those that there are."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

from tfr_moe.errors import UserError
from tfr_moe.reproduce.runs import Job, Result, run_all
from tfr_moe.reproduce.settings import StudySettings, choose, hold

MODULES = {
    "mmoe-synthetic": "tfr_moe.reproduce.mmoe_synthetic",
    "census": "tfr_moe.reproduce.census",
    **dict.fromkeys(
        (
            *(f"context-aware-table{number}" for number in (2, 3, 4, 5)),
            *(f"prm-table{number}" for number in (3, 4, 5)),
        ),
        "tfr_moe.reproduce.paper_tables",
    ),
    **dict.fromkeys(
        (f"adv-hsc-moe-{name}" for name in ("table3", "table4", "variants")),
        "tfr_moe.reproduce.mixture_tables",
    ),
    "adv-hsc-moe-table5": "tfr_moe.reproduce.category_table",
    **dict.fromkeys(
        (f"adv-hsc-moe-{name}" for name in ("table7", "table8", "fig6")),
        "tfr_moe.reproduce.paper_sweeps",
    ),
    "adv-hsc-moe-fig4": "tfr_moe.reproduce.gain_by_size",
    "adv-hsc-moe-fig5": "tfr_moe.reproduce.gate_vectors",
    **dict.fromkeys(
        (f"adv-hsc-moe-fig{number}" for number in (7, 8)), "tfr_moe.reproduce.category_features"
    ),
}


@dataclass(frozen=True)
class Place:
    """Where and how a study runs.

    Attributes:
        out: its folder.
        processes: how many runs at a time.
        data: the data's file or folder, for studies of real data.
        console: where progress goes.
    """

    out: Path
    processes: int
    data: Path | None
    console: Console

    def run_all(
        self, jobs: Sequence[Job], work: Callable[[Job], Result], name: str
    ) -> list[Result]:
        """The results of the jobs (see `tfr_moe.reproduce.runs`), kept in `out/NAME.jsonl`."""
        path = self.out / f"{name}.jsonl"
        return run_all(jobs, work, path, self.processes, self.console, name)


@dataclass(frozen=True)
class Study:
    """A study.

    Attributes:
        settings: the class of its settings.
        run: runs what is missing, writes results and plots below `place.out`, returns what to show.
        needs_data: whether it reads `place.data`.
    """

    settings: type[StudySettings]
    run: Callable[[Any, Place], Sequence[RenderableType]]
    needs_data: bool = False


def find(name: str) -> Study:
    """The study of that name.

    Raises:
        UserError: for an unknown one, naming those that there are.
    """
    if name not in MODULES:
        raise UserError(f"study {name!r}: must be one of {', '.join(MODULES)}")
    module = importlib.import_module(MODULES[name])
    return module.STUDIES[name] if hasattr(module, "STUDIES") else module.STUDY


def reproduce(
    name: str,
    place: Place,
    size: str = "default",
    pairs: Sequence[str] = (),
    runs: int | None = None,
) -> Sequence[RenderableType]:
    """Runs a study, or what is left of it.

    Args:
        name: see `MODULES`.
        place: folder, processes, data and console.
        size: a named size of its settings.
        pairs: single settings as `key=value`.
        runs: number of runs (seeds) of each cell.

    Returns:
        Tables and lines to print.

    Raises:
        UserError: for a mistake in what was asked for.
    """
    study = find(name)
    settings = choose(study.settings, size, pairs, runs=runs)
    if study.needs_data and place.data is None:
        raise UserError(f"study {name!r} needs --data")
    if not study.needs_data and place.data is not None:
        raise UserError(f"study {name!r} makes its own data: leave out --data")
    hold(place.out, name, settings)
    return study.run(settings, place)
