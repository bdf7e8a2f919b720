"""The Census-Income study of the MMoE paper (Ma et al. 2018, Tables 1 and 2): seven models, two groups.

What is done, in the order in which it is done:

1. The rows are split by a hash and encoded (`census_data`, which says what happens to weights, missing
   values, year and labels).
2. For each group and model KerasTuner's random search tries the same number of settings, drawn from
   the same space but for what only one model has (`census_training.sample_space`), and takes the one
   with the best validation AUC of the group's main task.
3. With those settings each model is trained several times with different seeds, each run keeping its best
   epoch by the same criterion, and is judged on the test rows.

All models have the parameters of MMoE with 8 experts, within what whole widths allow, but for
Tensor-Factorization (`census_training.layer_settings`). The loss is the mean of both tasks' cross
entropies, the optimizer Adam.
"""

from __future__ import annotations

import functools
from typing import Any

from rich.console import RenderableType

from tfr_moe.folders import write_json
from tfr_moe.reproduce.census_data import PARTS, find_file, read_table
from tfr_moe.reproduce.census_settings import CensusSettings
from tfr_moe.reproduce.census_summary import draw, summarize, tables
from tfr_moe.reproduce.runs import Job
from tfr_moe.reproduce.study import Place, Study


def tuning_jobs(settings: CensusSettings) -> list[Job]:
    """A search for each group and model."""
    return [{"group": g, "model": m} for g in settings.groups for m in settings.models]


def run_jobs(settings: CensusSettings, tuned: dict[tuple[int, str], dict[str, Any]]) -> list[Job]:
    """The runs of the tables; group by group, because a process holds one group's arrays."""
    return [
        {"group": g, "model": m, "seed": seed, "chosen": tuned[g, m]}
        for g in settings.groups
        for seed in range(settings.runs)
        for m in settings.models
    ]


def run(settings: CensusSettings, place: Place) -> list[RenderableType]:
    """The whole study: tuning, runs, `results.json` and the plots."""
    from tfr_moe.reproduce.census_training import run_one, tune_one

    assert place.data is not None
    path = str(find_file(place.data).resolve())
    searches = tuning_jobs(settings)
    found = place.run_all(searches, functools.partial(tune_one, settings, path), "tuning")
    tuned = {
        (job["group"], job["model"]): result["chosen"]
        for job, result in zip(searches, found, strict=True)
    }
    jobs = run_jobs(settings, tuned)
    results = place.run_all(jobs, functools.partial(run_one, settings, path), "runs")
    rows = [{**job, **result} for job, result in zip(jobs, results, strict=True)]
    summary = summarize(rows)
    part = read_table(find_file(place.data)).part
    counts = {name: int((part == index).sum()) for index, name in enumerate(PARTS)}
    write_json(place.out / "results.json", {"rows": counts, "tables": summary})
    for group in settings.groups:
        draw(place.out, group, [row for row in rows if row["group"] == group])
    shares = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    return [*tables(summary), f"rows: {shares}; the paper trains on the set's other half"]


STUDY = Study(CensusSettings, run, needs_data=True)
