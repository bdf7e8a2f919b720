"""`compare`: trains, evaluates and reports the models of a comparison in one folder."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from tfr_moe.baselines import open_run
from tfr_moe.comparison.training import LEARNING_RATES, Plan, train_models
from tfr_moe.config import BASELINE_NAMES, MULTITASK_NAMES
from tfr_moe.config import MODELS as ALL_MODELS
from tfr_moe.data.builder import ElwcDatasetBuilder
from tfr_moe.data.folder import DataFolder, open_data
from tfr_moe.data.frames import given_roles, schema_of_frame, write_frames
from tfr_moe.errors import UserError
from tfr_moe.evaluation.evaluate import counted, evaluate_run
from tfr_moe.evaluation.leaderboard import Leaderboard, make_leaderboard
from tfr_moe.evaluation.results import PerListResult
from tfr_moe.metrics.naming import check_columns
from tfr_moe.schema import SPLITS, FeatureSchema
from tfr_moe.training.run import make_scorer
from tfr_moe.training.run_folder import read_metrics, stored_config
from tfr_moe.utils.console import make_log, progress_bar
from tfr_moe.utils.io import atomic_directory, make_folder, plain, read_json, write_json
from tfr_moe.utils.settings import seconds_of

MODELS = ("lambdamart", "dnn", "wide_dnn", "adv_hsc_moe", "ple", "star")
NOTE_FILE = "comparison.json"


def claim(out: Path, note: str, options: Mapping[str, Any], kind: str) -> None:
    """Makes a folder for something that is resumed, or checks that it holds it already.

    The file `note` in it has the options, which must be the same to resume; `kind` names it in
    messages. Raises a UserError if the folder holds something else.
    """
    before = read_json(out / note)
    if before is not None:
        for name in {**options, **before}:
            if (old := before.get(name)) != (new := options.get(name)):
                raise UserError(
                    f"{out}: holds a {kind} made with {name}={old!r}, not {new!r}; "
                    "choose another folder"
                )
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out}: exists and is not a {kind}; choose another folder")
    make_folder(out, str(out))
    write_json(out / note, options)


def compare(
    data: Any,
    out: str | Path,
    models: Sequence[str] = MODELS,
    *,
    test: Any = None,
    validation: Any = None,
    schema: FeatureSchema | Mapping[str, Any] | str | Path | None = None,
    list_id: str | None = None,
    label: str | None = None,
    time: str | None = None,
    position: str | None = None,
    weight: str | None = None,
    hierarchy: Mapping[str, str] | None = None,
    ignore: str | Iterable[str] = (),
    settings: Mapping[str, Any] | None = None,
    metric: str = "session_auc",
    budget: str | float | None = None,
    learning_rates: Sequence[float] = LEARNING_RATES,
    seed: int = 1,
    report: bool = True,
    console: Console | None = None,
) -> Leaderboard:
    """Trains and compares models, and recommends one; the same call resumes.

    Each model selects its learning rate on the validation split, is trained with several seeds, and
    is evaluated once on the test split. The folder then holds `runs/`, `leaderboard.json` and
    `report.html` with the best run of each model.

    For a data frame, `list_id`, `label`, `time`, `position`, `weight`, `hierarchy` and `ignore`
    name its columns as in `Ranker.fit`.

    Args:
        data: a data-set folder with train, validation and test split, or a data frame with the
            training lists, as `Ranker.fit` takes it.
        models: names of single-label models and baselines.
        test: with a data frame, the frame with the test lists.
        validation: with a data frame, the frame with the validation lists; None takes them from
            `data`: the latest tenth where `time` is given, else by a hash of the list ID.
        schema: with a data frame, its schema; None infers it from `data` and these columns.
        settings: settings of all models by flat name; each takes those that it uses. With a
            `learning_rate` there is no search for it.
        metric: metric that models are selected and compared by.
        budget: training time, as `30m` or in seconds: as many seeds as fit, from 2 to 10. None for
            three seeds.
        learning_rates: those that neural models select from.
        seed: first seed.
        report: whether to write `report.html`.
        console: where progress is printed; None for stderr.

    Raises:
        UserError: for models, settings, data or a folder that do not fit.
    """
    console, out = console or Console(stderr=True), Path(out)
    with tempfile.TemporaryDirectory(prefix="tfr_moe-") as scratch:
        frames = {"test": test, "validation": validation, "schema": schema}
        roles = given_roles(
            ignore,
            list_id=list_id,
            label=label,
            time=time,
            position=position,
            weight=weight,
            hierarchy=hierarchy,
        )
        folder = _open(data, Path(scratch) / "data", frames, roles, console)
        options = {
            "data": folder.fingerprint,
            "settings": plain(dict(settings or {})),
            "metric": metric,
            "learning_rates": list(learning_rates),
            "seed": seed,
        }
        plan = Plan(
            folder,
            out,
            tuple(dict.fromkeys(models)),
            settings or {},
            metric,
            tuple(learning_rates),
            seed,
            None if budget is None else seconds_of(budget),
        )
        _check(plan)
        claim(out, NOTE_FILE, options, "comparison")
        if folder.path.parent == Path(scratch):
            plan = replace(plan, data=_keep(folder, out / "data"))
    runs = train_models(plan, console)
    board = _leaderboard(plan, runs, console)
    write_json(out / "leaderboard.json", plain(board))
    if report:
        _report(plan, board, console)
    return board


def _open(
    data: Any,
    out: Path,
    frames: Mapping[str, Any],
    roles: Mapping[str, Any],
    console: Console,
) -> DataFolder:
    """Opens a data-set folder; a data frame is written to `out` first."""
    if isinstance(data, (str, Path, DataFolder)):
        folder = open_data(data, {**frames, **roles})
    elif frames["test"] is None:
        raise UserError("test: with a data frame, give the frame with the test lists too")
    else:
        log = make_log(console)
        schema = schema_of_frame(data, frames["schema"], roles, log)
        folder = write_frames(out, data, frames["validation"], frames["test"], schema, log)
    for split in SPLITS:
        folder.check_lists(split)
    return folder


def _keep(folder: DataFolder, out: Path) -> DataFolder:
    """Copies a data set to the comparison, unless it has it from an earlier call."""
    if not out.is_dir():
        with atomic_directory(out) as partial:
            shutil.copytree(folder.path, partial, dirs_exist_ok=True)
    return DataFolder(out)


def _check(plan: Plan) -> None:
    """Raises a `UserError` for models, settings or data that do not fit."""
    for name, given in (("models", plan.models), ("learning_rates", plan.learning_rates)):
        if not given:
            raise UserError(f"{name}: must not be empty")
    allowed = [name for name in ALL_MODELS if name not in MULTITASK_NAMES]
    for model in plan.models:
        if model not in allowed:
            raise UserError(f"model {model!r}: must be one of {', '.join(allowed)}")
    check_columns([plan.metric], plan.data.schema.position, plan.data.schema.weight)
    plan.check()
    for model in set(plan.models) - set(BASELINE_NAMES):
        try:
            make_scorer(plan.data, plan.config(model, plan.rates(model)[-1], plan.seed))
        except UserError as error:
            raise UserError(f"{model}: {error}") from error


def _leaderboard(plan: Plan, runs: Mapping[str, Sequence[Path]], console: Console) -> Leaderboard:
    results = _evaluate(plan, runs, console)
    finished = {
        model: {str(run.relative_to(plan.out / "runs")): read_metrics(run) for run in of_model}
        for model, of_model in runs.items()
    }
    rates = {model: _rate(of_model[0]) for model, of_model in runs.items()}
    return make_leaderboard(plan.metric, results["validation"], results["test"], finished, rates)


def _evaluate(
    plan: Plan, runs: Mapping[str, Sequence[Path]], console: Console
) -> dict[str, dict[str, list[PerListResult]]]:
    """By split and model the results of its runs, each of which is loaded and traced once."""
    splits = ("validation", "test")
    builder = ElwcDatasetBuilder(plan.data)
    datasets = {split: builder.build_evaluation_dataset(split) for split in splits}
    results: dict[str, dict[str, list[PerListResult]]] = {
        split: {model: [] for model in runs} for split in splits
    }
    lists = sum(plan.data.num_lists(split) or 0 for split in splits)
    with progress_bar(console, "evaluating") as move:
        count = counted(move, lists * sum(map(len, runs.values())))
        for model, of_model in runs.items():
            for run in map(open_run, of_model):
                for split, dataset in datasets.items():
                    result = evaluate_run(
                        plan.data,
                        run,
                        split,
                        [plan.metric],
                        callbacks=[count(f"evaluating {model} on {split}")],
                        dataset=dataset,
                    )
                    results[split][model].append(result)
    return results


def _rate(run: Path) -> float | None:
    settings = stored_config(run).model_dump()
    return settings.get("learning_rate") or settings["library_parameters"].get("learning_rate")


def _report(plan: Plan, board: Leaderboard, console: Console) -> None:
    from tfr_moe.report.build import build_report, render_report
    from tfr_moe.report.html import write_page

    runs = {entry.model: plan.out / "runs" / entry.best_run for entry in board.entries}
    others = [*reversed(board.references), *(entry.model for entry in board.entries)]
    base = next((model for model in others if model != board.ship), board.ship)
    content = build_report(
        plan.data.path,
        {base: runs[base], **runs},
        metric=plan.metric,
        command=f"tfr-moe compare --data {plan.data.path} --out {plan.out}",
        console=console,
        leaderboard=board,
    )
    write_page(render_report(content), plan.out / "report.html")
