"""The month of one way and seed: a run each day, scored on the day after, and the publish gate."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.common.runs import Job, Result
from experiments.common.stored_results import load_result, save_result
from experiments.common.training import train_once
from experiments.studies.month.data import drift_limits
from experiments.studies.month.settings import METRICS, MODEL, Folders, MonthSettings, of_day
from tfr_moe.baselines import open_run
from tfr_moe.config import make_config
from tfr_moe.data import DataFolder
from tfr_moe.evaluation import evaluate_run, summarize
from tfr_moe.serving.publish import publish
from tfr_moe.utils import read_json, write_json

FIRST = "first"
"""The way of the first run, from which all others of its seed continue."""
GATED_SEED = 1
"""The seed whose runs go through the publish gate: a decision takes longer than a run."""
_MAX_RATIO = 5.0  # of size and latency, which say nothing while cores are shared


def opened(settings: Mapping[str, Any], out: str) -> tuple[MonthSettings, Folders]:
    """The settings and folders in a process of its own."""
    return MonthSettings.model_validate(settings), Folders(Path(out))


def _trained(
    settings: MonthSettings, seed: int, window: Path, run: Path, start: Path | None = None
) -> float:
    """Trains a run unless it is finished; returns its seconds."""
    epochs = settings.epochs if start is None else settings.warm_epochs
    given = {**MODEL, **settings.with_settings, "num_epochs": epochs, "seed": seed}
    return float(train_once(window, run, make_config(given), start)["seconds"])


def train_first(settings: Mapping[str, Any], out: str, job: Job) -> Result:
    """Trains the first run of a seed on the first window."""
    study, folders = opened(settings, out)
    run = folders.run(FIRST, job["seed"], study.first)
    return {"seconds": _trained(study, job["seed"], folders.window(study.first), run)}


def run_month(settings: Mapping[str, Any], out: str, job: Job) -> Result:
    """Trains, publishes and scores the runs of a way and seed.

    Returns:
        `seconds` of training of each day, 0 where there was no run; `published`: day -> what the
        gate decided.
    """
    study, folders = opened(settings, out)
    way, seed = job["way"], job["seed"]
    gated = seed == GATED_SEED and way != "once"
    newest = folders.run(FIRST, seed, study.first)
    loaded = open_run(newest)
    seconds, decisions = [], {}
    for day in study.scored:
        score(loaded, folders.lists(day), folders.scores(way, seed, day))
        if gated and day == study.scored[0]:
            decide(study, folders, way, newest, folders.lists(study.first))
        trains = way != "once" and folders.window(day).is_dir()
        if trains:
            run = folders.run(way, seed, day)
            start = newest if way == "warm" else None
            seconds.append(_trained(study, seed, folders.window(day), run, start))
            newest, loaded = run, open_run(run)
            if gated:
                lists = folders.lists(day)
                decisions[str(day)] = decide(study, folders, way, run, lists)
        else:
            seconds.append(0.0)
    return {"seconds": seconds, "published": decisions}


def score(run: Any, data: Path, path: Path) -> dict[str, float]:
    """Scores the test lists of a day, unless their metrics are stored; returns the means."""
    if not path.is_file():
        path.parent.mkdir(exist_ok=True)
        save_result(evaluate_run(DataFolder(data), run, "test", METRICS), path)
    return {name: summary.mean for name, summary in summarize(load_result(path)).items()}


def decide(
    settings: MonthSettings,
    folders: Folders,
    name: str,
    run: Path,
    data: Path,
    reference: Path | None = None,
    tag: str = "",
) -> dict[str, Any]:
    """Passes a run through the publish gate of a model, once; returns the decision.

    Args:
        settings: of the study.
        folders: of the study.
        name: of the model.
        run: the candidate.
        data: whose test lists the gate compares on.
        reference: for the gate's check of drift.
        tag: of the decision, where a run is decided more than once.
    """
    path = folders.out / "decisions" / f"{name}-{run.name}{tag}.json"
    stored: dict[str, Any] | None = read_json(path)
    if stored is None:
        decision = publish(
            run,
            folders.out / "models" / name,
            data,
            margin=settings.margin,
            max_ratio=_MAX_RATIO,
            reference=reference,
            limits=None if reference is None else drift_limits(),
            console=Console(quiet=True),
        )
        failed = [{"check": c.name, "text": c.text} for c in decision.checks if not c.passed]
        quality = next((c.numbers for c in decision.checks if c.name == "click_ndcg_10"), None)
        stored = {"published": decision.published, "failed": failed, "quality": quality}
        path.parent.mkdir(exist_ok=True)
        write_json(path, stored)
    return stored


def train_on_broken_day(settings: Mapping[str, Any], out: str, job: Job) -> Result:
    """What happens to the broken day without the step of drift.

    A candidate is trained on the window with the broken day, from the run of the day before, which
    is live, and goes through the gate with its own check of drift and without.
    """
    study, folders = opened(settings, out)
    seed, day = job["seed"], study.broken_day
    name = f"broken-{seed}"
    live = _newest_before(folders, study, seed)
    before = next(d for d in range(day - 1, -1, -1) if folders.window(d).is_dir())
    run = folders.broken / f"run-{seed}"
    _trained(study, seed, folders.broken / "window", run, live)
    shutil.rmtree(folders.out / "models" / name, ignore_errors=True)
    for path in (folders.out / "decisions").glob(f"{name}-*.json"):
        path.unlink()
    lists = of_day(folders.broken / "data", day)
    decide(study, folders, name, live, folders.lists(before))
    reference = folders.window(before)
    result: Result = {
        "with_drift": decide(study, folders, name, run, lists, reference, "-with-drift"),
        "quality_alone": decide(study, folders, name, run, lists),
    }
    on = {"cents": lists, "corrected": folders.corrected / "days" / lists.name}
    for of, model in {"live": live, "candidate": run}.items():
        loaded = open_run(model)
        result[of] = {
            kind: score(loaded, data, folders.broken / f"{of}-{seed}-{kind}.npz")
            for kind, data in on.items()
        }
    return result


def _newest_before(folders: Folders, study: MonthSettings, seed: int) -> Path:
    """The newest run of the warm starts before the broken day."""
    for day in range(study.broken_day - 1, study.first, -1):
        if (path := folders.run("warm", seed, day)).is_dir():
            return path
    return folders.run(FIRST, seed, study.first)
