"""A run: a folder that holds all there is to know about one training."""

from __future__ import annotations

import logging
import math
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from tfr_moe import losses, metrics
from tfr_moe._compat import tf, tfr
from tfr_moe.cluster import PARAMETER_SERVER, Cluster, cluster_for, settings_of
from tfr_moe.config import BASELINE_NAMES, RunConfig, load_config
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.data.cached import cached_builder
from tfr_moe.errors import UserError
from tfr_moe.folders import make_folder, read_json, write_json
from tfr_moe.levels import single_score
from tfr_moe.schema import FeatureSchema
from tfr_moe.scorers import FeatureScorer, combined_model, create
from tfr_moe.tasks import Task
from tfr_moe.training.grades import with_max_label
from tfr_moe.training.ledger import weights_path
from tfr_moe.training.pipeline import RankingPipeline
from tfr_moe.training.strategy import Place, join, told_when_lost

CONFIG_FILE = "config.yaml"
METRICS_FILE = "metrics.json"


class LoadedRun(NamedTuple):
    """A trained run.

    Attributes:
        path: its folder.
        config: its settings.
        schema: the schema of its data.
        model: the Keras model with the weights of the best epoch.
        metrics: the content of `metrics.json`.
    """

    path: Path
    config: RunConfig
    schema: FeatureSchema
    model: Any
    metrics: dict[str, Any]

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks of the run; none where its model has a single score."""
        return self.config.tasks_over(self.schema)

    def ranker(self) -> tf.keras.Model:
        """The model as it is served: logits [B, L], or with tasks a dict.

        The dict holds `scores`, which combines the tasks by their stated weights, and `scores_<task>`.
        """
        if not self.tasks:
            return self.model
        weights = {task.name: task.score_weight for task in self.tasks}
        grades = self.config.graded_tasks_over(self.schema)
        return combined_model(self.model, weights, self.config.score_combination, grades)


def make_scorer(folder: DataFolder, config: RunConfig) -> FeatureScorer:
    """The scorer that the settings ask for, over the data's schema and tables."""
    tasks = config.tasks_over(folder.schema)
    settings = {
        **config.model_dump(),
        "tasks": {task.name: task.given for task in tasks} or None,
        "graded_tasks": config.graded_tasks_over(folder.schema) if tasks else None,
        "num_outputs": config.num_outputs,
    }
    return create(config.model, folder.schema, folder.tables(), settings)


def refuse_finished(run: Path) -> None:
    """Refuses to train once more.

    Raises:
        UserError: if the folder holds a finished run.
    """
    if (run / METRICS_FILE).is_file():
        raise UserError(f"run {run}: is complete already; choose another --out or remove it")


def refuse_other_settings(run: Path, config: RunConfig) -> None:
    """Refuses settings with which the run was not begun.

    Raises:
        UserError: naming the first that differs.
    """
    before = load_config(run / CONFIG_FILE).model_dump()
    now = config.model_dump()
    for key in now:
        if before[key] != now[key]:
            raise UserError(
                f"run {run}: was begun with {key}={before[key]!r}, not {now[key]!r}; "
                "resume it with the same settings or choose another --out"
            )


def prepare(run: Path, folder: DataFolder, config: RunConfig) -> None:
    """Makes the run's folder, or finds that it can go on.

    Raises:
        UserError: if it can't be made, or holds a finished run or one with other settings.
    """
    refuse_finished(run)
    make_folder(run, f"run {run}")
    if (run / CONFIG_FILE).is_file():
        refuse_other_settings(run, config)
    elif any(run.iterdir()):
        raise UserError(f"run {run}: the folder is not empty and holds no run")
    folder.copy_description(run)
    config.save(run / CONFIG_FILE)


def check_names(config: RunConfig) -> None:
    """Refuses a loss or a metric that there isn't, or that don't go together.

    Raises:
        UserError: with the names that there are.
    """
    pairs = [(config.loss, config.metrics)]
    for task in (config.tasks or {}).values():
        own = config.metrics if task.metrics is None else task.metrics
        pairs.append((task.loss or config.loss, own))
    for loss, names in pairs:
        losses.get(loss, config.max_label)
        for name in names:
            metrics.get(name)
            if loss == "ordinal" and not metrics.takes_levels(name):
                raise UserError(
                    f"metric {name!r} takes one output for each item, loss ordinal has several"
                )


def _number_of_steps(folder: DataFolder, batch_size: int) -> int | None:
    lists = folder.num_lists("train")
    return None if lists is None else math.ceil(lists / batch_size)


def train(
    data: str | Path,
    run: str | Path,
    config: RunConfig,
    console: Console | None = None,
    cluster: Cluster | None = None,
) -> dict[str, Any]:
    """Trains one model on a data-set folder; begun again after a kill, it resumes.

    Args:
        data: the data-set folder.
        run: the run's folder; made if it is not there.
        config: the settings.
        console: where progress goes; None for stderr.
        cluster: the processes that train together, each of which calls this; all must see the same
            folders. Only the cluster's leader writes the run. None for what `TF_CONFIG` says under a strategy
            over several processes, and else for this process alone.

    Returns:
        What `metrics.json` holds.

    Raises:
        UserError: for settings, data or a folder that don't fit, in one line.
        LostWorkersError: where another process of the cluster is gone.
    """
    console = console or Console(stderr=True)
    run, folder = Path(run), DataFolder(data)
    folder.files("validation")
    # Told before anyone waits for the others.
    refuse_finished(run)
    cluster = cluster_for(config.strategy, cluster)
    config = settings_of(config, cluster)
    place = join(config.strategy, cluster)
    started = time.monotonic()
    with told_when_lost(place):
        config = with_max_label(folder, config)
        check_names(config)
        if place.leads:
            prepare(run, folder, config)
        place.meet()
        refuse_other_settings(run, config)
        pipeline = fit(
            folder, make_builder(folder, config), config, run, console, RankingPipeline, place
        )
    result = _result(pipeline, config, folder, time.monotonic() - started)
    if place.leads:
        write_json(run / METRICS_FILE, result)
        shutil.rmtree(run / "backup", ignore_errors=True)
    else:
        shutil.rmtree(place.folder(run), ignore_errors=True)
    return result


def make_builder(
    folder: DataFolder,
    config: RunConfig,
    make: Callable[..., ElwcDatasetBuilder] | None = None,
) -> ElwcDatasetBuilder:
    """The dataset builder that the settings ask for; `make` instead of the one that `cache` names."""
    if make is None:
        make = cached_builder(folder, config.cache)
    # Each worker of parameter servers draws lists of its own, as many as it comes to.
    alone = config.strategy == PARAMETER_SERVER
    return make(
        folder,
        config.batch_size,
        config.list_size,
        config.shuffle_buffer_size,
        repeat=alone or config.steps_per_epoch is not None,
        seed=None if alone else config.seed,
        tasks=[task.name for task in config.tasks_over(folder.schema)],
    )


def fit(
    folder: DataFolder,
    builder: ElwcDatasetBuilder,
    config: RunConfig,
    run: Path,
    console: Console,
    make_pipeline: Callable[..., RankingPipeline] = RankingPipeline,
    place: Place | None = None,
) -> RankingPipeline:
    """Trains below `run` by a pipeline: seeds, precision and model as the settings ask for.

    Args:
        folder: the data set.
        builder: serves its batches.
        config: the settings.
        run: an existing folder, which may hold the state of a killed training.
        console: where progress goes.
        make_pipeline: `RankingPipeline`, or what makes one from the same arguments.
        place: where this process stands among those that train together; see `RankingPipeline`.

    Returns:
        The pipeline, with the ledger of all epochs.
    """
    # A note of Keras about its own file formats on every save is no news.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    tf.keras.utils.set_random_seed(config.seed)
    if config.deterministic:
        tf.config.experimental.enable_op_determinism()
    policy = tf.keras.mixed_precision.global_policy()
    tf.keras.mixed_precision.set_global_policy(config.precision)
    try:
        pipeline = make_pipeline(
            make_scorer(folder, config).model_builder(name=config.model),
            builder,
            config,
            run,
            console,
            _number_of_steps(folder, config.batch_size),
            *(() if place is None else (place,)),
        )
        pipeline.train_and_validate()
    finally:
        tf.keras.mixed_precision.set_global_policy(policy)
    return pipeline


def _result(
    pipeline: RankingPipeline, config: RunConfig, folder: DataFolder, seconds: float
) -> dict[str, Any]:
    epochs = pipeline.ledger.epochs
    best = pipeline.ledger.best
    if best is None:
        raise UserError(
            f"{pipeline.monitor} was never a number: the validation split has no list that "
            f"{config.monitor} can judge, or training diverged"
        )
    model = pipeline.model
    lists = folder.num_lists("train")
    return {
        "model": config.model,
        "data": str(folder.path.resolve()),
        "monitor": pipeline.monitor,
        "best_epoch": best["epoch"],
        "epochs": len(epochs),
        "best": {k: v for k, v in best.items() if k != "epoch"},
        "parameters": None if model is None else model.count_params(),
        "seconds": round(seconds, 1),
        "train_lists": lists,
        "versions": {"tensorflow": tf.__version__, "tensorflow_ranking": tfr.__version__},
    }


def load_run(path: str | Path) -> LoadedRun:
    """Rebuilds a finished run's model with the weights of its best epoch.

    Raises:
        UserError: if there is no finished run.
    """
    path = Path(path)
    if not (path / CONFIG_FILE).is_file():
        raise UserError(f"run {path}: no such run ({CONFIG_FILE} is missing)")
    result = read_json(path / METRICS_FILE)
    if result is None:
        raise UserError(
            f"run {path}: is not finished; `tfr-moe train` with the same --out resumes it"
        )
    config = load_config(path / CONFIG_FILE)
    if config.model in BASELINE_NAMES:
        raise UserError(
            f"run {path}: {config.model} is no neural model; it can be evaluated, but not exported"
        )
    folder = DataFolder(path)
    policy = tf.keras.mixed_precision.global_policy()
    tf.keras.mixed_precision.set_global_policy(config.precision)
    try:
        model = make_scorer(folder, config).build_model(name=config.model)
    finally:
        tf.keras.mixed_precision.set_global_policy(policy)
    weights = weights_path(path, result["best_epoch"])
    model.load_weights(str(weights)).expect_partial()
    return LoadedRun(path, config, folder.schema, single_score(model), result)
