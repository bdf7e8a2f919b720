"""A simulated month: is training each day worth it, and from which weights?

The logs of `log` change from day to day. Every morning the log of the day is built, compared with
the window before, and joined to a window. A model is trained once on the first window (`once`),
from scratch each day (`scratch`), or from the run of the day before (`warm`), on the same window. A
warm start reads the window too, not the new day alone: items that were not shown today keep their
weights. The newest run is scored on the test lists of the day after. Prices of one day are in
cents: what stops it is shown for each gate alone.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from rich.console import RenderableType

from experiments.common.runs import Job
from experiments.common.study import Study, StudyContext
from experiments.studies.month.chain import run_month, train_first, train_on_broken_day
from experiments.studies.month.data import make_days
from experiments.studies.month.page import named_tables, table, write_results
from experiments.studies.month.results import summarize
from experiments.studies.month.settings import WAYS, Folders, MonthSettings
from tfr_moe.utils import progress_bar, write_json


def run(settings: MonthSettings, context: StudyContext) -> Sequence[RenderableType]:
    """Runs what is missing; writes `results.json`, `results.md`, `month.html` and its charts."""
    folders = Folders(context.out)
    drifted = {}
    with progress_bar(context.console, "days") as advance:
        for number, (day, columns) in enumerate(make_days(settings, folders), start=1):
            drifted[day] = columns
            advance(number, settings.days)
    given = settings.model_dump(mode="json"), str(context.out)
    seeds = range(1, settings.runs + 1)
    of_seeds: list[Job] = [{"seed": seed} for seed in seeds]
    context.run_all(of_seeds, functools.partial(train_first, *given), "first-runs")
    jobs: list[Job] = [{"way": way, "seed": seed} for seed in seeds for way in reversed(WAYS)]
    results = context.run_all(jobs, functools.partial(run_month, *given), "months")
    months = {(job["way"], job["seed"]): result for job, result in zip(jobs, results, strict=True)}
    work = functools.partial(train_on_broken_day, *given)
    broken = context.run_all(of_seeds, work, "broken-day")
    content = summarize(settings, folders, drifted, months, broken)
    write_json(context.out / "results.json", content)
    write_results(content, context)
    return [table(title, rows) for title, rows in named_tables(content)]


STUDIES = {"month": Study(MonthSettings, run)}
