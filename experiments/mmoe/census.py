"""Tables 1 and 2 of the MMoE paper (Ma et al. 2018): seven models on UCI Census-Income.

Steps:

1. The rows are split by a hash and encoded (`census_data`).
2. For each group and model, KerasTuner's random search tries the same number of settings
   (`census_training.sample_space`) and selects the one with the best validation AUC of the main
   task.
3. With these settings each model is trained with several seeds, selects its best epoch by the same
   metric, and is evaluated on the test rows.

All models have about as many parameters as MMoE with 8 experts, except Tensor-Factorization
(`census_training.layer_settings`). The loss is the mean of both tasks' cross entropies, the
optimizer Adam.
"""

from __future__ import annotations

import functools
from typing import Any

from rich.console import RenderableType

from experiments.common.runs import Job
from experiments.common.study import Study, StudyContext
from experiments.mmoe.census_data import PARTS, find_file, read_table
from experiments.mmoe.census_summary import draw, summarize, tables
from experiments.mmoe.census_training import CensusSettings, run_one, tune_one
from tfr_moe.utils import write_json


def tuning_jobs(settings: CensusSettings) -> list[Job]:
    """Returns a search for each group and model."""
    return [{"group": g, "model": m} for g in settings.groups for m in settings.models]


def run_jobs(settings: CensusSettings, tuned: dict[tuple[int, str], dict[str, Any]]) -> list[Job]:
    """Returns the runs of the tables, group by group: a process holds one group's arrays."""
    return [
        {"group": g, "model": m, "seed": seed, "chosen": tuned[g, m]}
        for g in settings.groups
        for seed in range(settings.runs)
        for m in settings.models
    ]


def run(settings: CensusSettings, context: StudyContext) -> list[RenderableType]:
    """Runs what is missing of the study: tuning, runs, `results.json` and the plots."""
    file = find_file(context.need_data()).resolve()
    path = str(file)
    searches = tuning_jobs(settings)
    searched = context.run_all(searches, functools.partial(tune_one, settings, path), "tuning")
    tuned = {
        (job["group"], job["model"]): result["chosen"]
        for job, result in zip(searches, searched, strict=True)
    }
    jobs = run_jobs(settings, tuned)
    results = context.run_all(jobs, functools.partial(run_one, settings, path), "runs")
    rows = [{**job, **result} for job, result in zip(jobs, results, strict=True)]
    summary = summarize(rows)
    part = read_table(file).part
    counts = {name: int((part == index).sum()) for index, name in enumerate(PARTS)}
    write_json(context.out / "results.json", {"rows": counts, "tables": summary})
    for group in settings.groups:
        draw(context.out, group, [row for row in rows if row["group"] == group])
    shares = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    return [*tables(summary), f"rows: {shares}; the paper trains on the set's other half"]


STUDIES = {"census": Study(CensusSettings, run, needs_data=True)}
