"""What a study is, and the registry of all studies."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

from experiments.common.runs import Job, Result, run_all
from experiments.common.settings import StudySettings, choose, open_folder
from tfr_moe.errors import UserError

_PAPER = "experiments.adv_hsc_moe"
STUDIES: dict[str, tuple[str, str]] = {
    "adv-hsc-moe-table3": (f"{_PAPER}.model_tables", "DNN, wide DNN and the mixtures"),
    "adv-hsc-moe-table4": (f"{_PAPER}.model_tables", "the same with the settings of Table IV"),
    "adv-hsc-moe-table5": (f"{_PAPER}.category_table", "a DNN per category against joint models"),
    "adv-hsc-moe-table7": (f"{_PAPER}.sweeps", "sweep: inputs of the gate"),
    "adv-hsc-moe-table8": (f"{_PAPER}.sweeps", "sweep: both lambdas"),
    "adv-hsc-moe-fig4": (f"{_PAPER}.gain_by_size", "gain over DNN by size of the categories"),
    "adv-hsc-moe-fig5": (f"{_PAPER}.gate_vectors", "t-SNE and silhouette of gate vectors"),
    "adv-hsc-moe-fig6": (f"{_PAPER}.sweeps", "sweep: N, K and D"),
    "adv-hsc-moe-fig7": (f"{_PAPER}.category_features", "feature importance by category"),
    "adv-hsc-moe-fig8": (f"{_PAPER}.category_features", "brand concentration by category"),
    "mmoe-synthetic": ("experiments.mmoe.synthetic", "tasks of chosen correlation"),
    "census": ("experiments.mmoe.census", "seven multi-task models on UCI Census-Income"),
    "context-aware-table2": ("experiments.context_aware.tables", "shop logs, four losses"),
    "context-aware-table3": ("experiments.context_aware.tables", "self-attention against MLP"),
    "context-aware-table4": ("experiments.context_aware.tables", "re-ranking, positional encoding"),
    "context-aware-table5": ("experiments.context_aware.tables", "ablations of the encoder"),
    "prm-table3": ("experiments.prm.tables", "SVMRank, LambdaMART, DLCM and PRM-BASE"),
    "prm-table4": ("experiments.prm.tables", "ablations of PRM-BASE"),
    "prm-table5": ("experiments.prm.tables", "DLCM, PRM-BASE and personalized PRM"),
    "compare-models": ("experiments.studies.comparisons", "any models under the same settings"),
    "adv-hsc-moe-variants": ("experiments.studies.comparisons", "variants beyond the paper"),
    "month": ("experiments.studies.month.study", "daily training on logs that change"),
    "position-bias": ("experiments.studies.position_bias", "clicks with known examination"),
    "complete-journey": ("experiments.studies.comparisons", "towers of equal cost on real lists"),
    "journey-ways": ("experiments.studies.ways.study", "34 towers and mixtures on real lists"),
    "category-tastes": (
        "experiments.studies.comparisons",
        "towers of equal cost on generated logs",
    ),
}
"""Name -> module that has it in `STUDIES`, and one line on what it shows."""


@dataclass(frozen=True)
class StudyContext:
    """Where and how a study runs.

    Attributes:
        out: its folder.
        processes: number of parallel runs.
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
        """Runs the missing jobs and stores them in `out/NAME.jsonl`; see `runs.run_all`."""
        path = self.out / f"{name}.jsonl"
        return run_all(jobs, work, path, self.processes, self.console, name)

    def need_data(self) -> Path:
        """Returns `data`, which `run_study` has checked for a study that needs it."""
        assert self.data is not None
        return self.data


@dataclass(frozen=True)
class Study:
    """A study.

    Attributes:
        settings: the class of its settings.
        run: runs what is missing, writes results and plots below `context.out`, and returns the
            tables and lines to print.
        needs_data: whether it reads `context.data`.
    """

    settings: type[StudySettings]
    run: Callable[[Any, StudyContext], Sequence[RenderableType]]
    needs_data: bool = False


def find(name: str) -> Study:
    """Returns the study of that name.

    Raises:
        UserError: for an unknown name, listing the known ones.
    """
    if name not in STUDIES:
        raise UserError(f"study {name!r}: must be one of {', '.join(STUDIES)}")
    return importlib.import_module(STUDIES[name][0]).STUDIES[name]


def run_study(
    name: str,
    context: StudyContext,
    size: str = "default",
    pairs: Sequence[str] = (),
    runs: int | None = None,
) -> Sequence[RenderableType]:
    """Runs a study, or what is missing of it.

    Args:
        name: one of `STUDIES`.
        context: folder, processes, data and console.
        size: a named size of its settings.
        pairs: single settings as `key=value`.
        runs: number of runs (seeds) of each cell.

    Returns:
        Tables and lines to print.

    Raises:
        UserError: for invalid settings, data or folders.
    """
    study = find(name)
    if runs is not None and "runs" not in study.settings.model_fields:
        raise UserError(f"study {name!r} trains nothing: leave out --seeds")
    settings = choose(study.settings, size, pairs, runs=runs)
    if study.needs_data and context.data is None:
        raise UserError(f"study {name!r} needs --data")
    if not study.needs_data and context.data is not None:
        raise UserError(f"study {name!r} generates its data: leave out --data")
    open_folder(context.out, name, settings)
    return study.run(settings, context)
