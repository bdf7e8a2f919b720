"""Runs: folders with the configuration, history, weights and results of one trained model."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from tfr_moe import losses, metrics
from tfr_moe._compat import tf, tfr
from tfr_moe.config import BASELINE_NAMES, RunConfig
from tfr_moe.data.builder import TRAINING_SPLITS, ElwcDatasetBuilder, cached
from tfr_moe.data.folder import DataFolder, open_data
from tfr_moe.errors import UserError
from tfr_moe.layers.outputs import single_score
from tfr_moe.metrics.naming import check_columns
from tfr_moe.schema import FeatureSchema
from tfr_moe.scorers import FeatureScorer, combined_model, create
from tfr_moe.scorers.base import inference_function
from tfr_moe.scorers.gate_maps import gate_reports
from tfr_moe.training.callbacks import read_history, weights_path
from tfr_moe.training.collapsed_gates import warn_of_gates
from tfr_moe.training.distribute import join_cluster, translate_cluster_errors
from tfr_moe.training.pipeline import RankingPipeline
from tfr_moe.training.position_bias import bias_by_position, check_position_bias, log_variation
from tfr_moe.training.run_folder import (
    FinishedRun,
    check_not_finished,
    check_same_settings,
    finish,
    finished_run,
    prepared,
    stored_config,
)
from tfr_moe.utils.console import warn
from tfr_moe.utils.failures import file_errors, reading

_CHECKED_BATCHES = 200  # of validation lists, for the check of the gates


@dataclass(frozen=True)
class LoadedRun(FinishedRun):
    """A finished run of a neural model; `model` has the weights of the best epoch."""

    model: Any

    @functools.cached_property
    def score(self) -> Callable[..., Any]:
        """The function from features to the outputs of `served_model`, one graph for all calls."""
        return inference_function(self.served_model(), self.schema)

    def served_model(self) -> tf.keras.Model:
        """The model as it is served: logits [B, L], or with tasks a dict.

        The dict has `scores`, the tasks combined by their weights, and `scores_<task>`.
        """
        if not self.tasks:
            return self.model
        weights = {task.name: task.score_weight for task in self.tasks}
        return combined_model(self.model, weights, self.config.multi_task.score_combination)


def make_scorer(folder: DataFolder, config: RunConfig) -> FeatureScorer:
    """Makes the scorer of a configuration for the schema and tables of a data set."""
    tasks = config.tasks_over(folder.schema)
    settings = {
        **config.model_dump(),
        "tasks": {task.name: task.conditioned_on for task in tasks} or None,
        "num_outputs": config.num_outputs,
    }
    return create(config.model, folder.schema, folder.tables(), settings)


def check_names(config: RunConfig, schema: FeatureSchema) -> None:
    """Checks that losses and metrics exist, go together and are defined on data of the schema."""
    pairs = [(config.objective.loss, config.training.metrics)]
    pairs += [(task.loss, task.metrics) for task in config.tasks_over(schema)]
    for loss, names in pairs:
        losses.get(loss, config.objective.max_label)
        for name in names:
            metrics.get(name)
            check_columns([name], schema.position, schema.weight)
    check_position_bias(config, schema)


def highest_label(folder: DataFolder, labels: Sequence[str]) -> int:
    """The highest grade in the training lists, rounded up; a UserError if no item is relevant."""
    highest = 0.0
    batches = ElwcDatasetBuilder(folder, batch_size=1024).build_parsed_dataset("train")
    for batch in batches.as_numpy_iterator():
        highest = max(highest, *(float(batch[label].max()) for label in labels))
    grade = math.ceil(highest)
    if grade < 1:
        raise UserError(
            f"data {folder.path}: no training item has a label {' or '.join(labels)} above 0"
        )
    return grade


def with_max_label(
    folder: DataFolder, config: RunConfig, start: str | Path | None = None
) -> RunConfig:
    """Sets `max_label` from the training data, if a loss needs it and it is not set.

    It is at least that of the run `start`, whose grades the weights stand for.
    """
    tasks = config.tasks_over(folder.schema)
    losses_of = {task.name: task.loss for task in tasks}
    losses_of = losses_of or {folder.schema.label: config.objective.loss}
    labels = [name for name, loss in losses_of.items() if loss in losses.GRADED]
    if not labels or config.objective.max_label is not None:
        return config
    known = None if start is None else stored_config(Path(start)).objective.max_label
    return config.replace(max_label=max(highest_label(folder, labels), known or 0))


def train(
    data: str | Path | DataFolder,
    run: str | Path,
    config: RunConfig,
    console: Console | None = None,
    callbacks: Sequence[tf.keras.callbacks.Callback] = (),
    start: str | Path | None = None,
) -> dict[str, Any]:
    """Trains one model on a data set; the same call resumes an interrupted run.

    Under `strategy: MultiWorkerMirroredStrategy` each process of the cluster in `TF_CONFIG` calls
    this with the same folders; the leader writes the run.

    Args:
        data: the data-set folder, or an open data set.
        run: folder of the run; made if it does not exist.
        config: configuration of the run.
        console: where progress is printed; None for stderr.
        callbacks: called after those of the run.
        start: a finished run to start from, in place of random weights; see `WarmStart`.

    Returns:
        The content of `metrics.json`.

    Raises:
        UserError: for a configuration, data or a folder that do not fit, in one line.
        LostWorkersError: if another process of the cluster is gone.
    """
    console = console or Console(stderr=True)
    run, folder = Path(run), open_data(data)
    for split in TRAINING_SPLITS:
        folder.check_lists(split)
    # Before waiting for other processes.
    check_not_finished(run)
    context = join_cluster(config.training.strategy)
    started = time.monotonic()
    with file_errors(f"run {run}"):
        config = with_max_label(folder, config, start)
        check_names(config, folder.schema)
        initialize = None
        if start is not None:
            from tfr_moe.training.warm_start import WarmStart  # reads runs by this module

            source = WarmStart(start)
            folder = source.described(folder)
            initialize = functools.partial(source.apply, folder=folder)
        is_leader = context.is_leader
        folder_of_run = (
            prepared(run, folder, config, start) if is_leader else contextlib.nullcontext()
        )
        with folder_of_run, translate_cluster_errors(context):
            if is_leader:
                warn_of_one_task(config, folder.schema, console)
                warn_of_constants(config, folder, console)
                if config.bias.position_bias:
                    log_variation(folder, config, console)
            context.barrier()
            check_same_settings(run, config)
            with console.status(f"reading {folder.path}"):
                builder = make_builder(folder, config)
            pipeline = fit(
                builder,
                config,
                run,
                console,
                context=context,
                callbacks=callbacks,
                initialize=initialize,
            )
    result = _result(pipeline, config, folder, time.monotonic() - started)
    if is_leader:
        weights = weights_path(run, result["best_epoch"])
        pipeline.model.load_weights(str(weights))
        if config.bias.position_bias:
            result["position_bias"] = bias_by_position(pipeline.model, folder)
        gates = gate_reports(pipeline.model, _checked_batches(builder), folder.schema)
        warn_of_gates(gates, config, console)
        warn_of_last_epoch(result["best_epoch"], config, console)
        finish(run, folder, result, weights.parent.glob(f"{weights.name}.*"))
        shutil.rmtree(run / "backup", ignore_errors=True)
    else:
        shutil.rmtree(context.run_folder(run), ignore_errors=True)
    return result


def _checked_batches(builder: ElwcDatasetBuilder) -> Iterator[tuple[Any, ...]]:
    """Validation batches, read only for models that have gates to check."""
    yield from builder.build_evaluation_dataset("validation").take(_CHECKED_BATCHES)


def warn_of_one_task(config: RunConfig, schema: FeatureSchema, console: Console) -> None:
    """Warns of a model of several tasks on one label."""
    if config.spec.kind == "multi_task" and len(schema.labels) == 1:
        warn(
            console,
            f"model {config.model} is for several tasks, and {schema.label} is the only label: "
            "add labels to the schema or choose a model of one task",
        )


def warn_of_constants(config: RunConfig, folder: DataFolder, console: Console) -> None:
    """Warns of features with one value in all training lists."""
    used = set(folder.constant_features()) - set(config.features.ignored_features)
    if used:
        names = ", ".join(sorted(used))
        warn(console, f"one value in all training lists, which no model can use: {names}")


def warn_of_last_epoch(best: int, config: RunConfig, console: Console) -> None:
    """Warns of a run that was still improving when it ended, at its full learning rate."""
    epochs = config.training.num_epochs
    reduced = (config.optimization.learning_rate_drop_epoch or epochs) < epochs
    if best == epochs > 1 and not reduced:
        line = f"the best epoch is the last one, {best}: raise num_epochs, it may improve further"
        warn(console, line)


def make_builder(folder: DataFolder, config: RunConfig) -> ElwcDatasetBuilder:
    """Makes the dataset builder of a configuration."""
    return ElwcDatasetBuilder(
        cached(folder, config.data.cache),
        config.data.batch_size,
        config.data.list_size,
        config.data.shuffle_buffer_size,
        repeat=config.training.steps_per_epoch is not None,
        seed=config.seed,
        tasks=[task.name for task in config.tasks_over(folder.schema)],
        with_position=bool(config.bias.position_bias),
    )


def fit(
    builder: ElwcDatasetBuilder,
    config: RunConfig,
    run: Path,
    console: Console,
    make_pipeline: Callable[..., RankingPipeline] = RankingPipeline,
    **arguments: Any,
) -> RankingPipeline:
    """Trains a model in the folder `run`, with the seed, precision and model of the configuration.

    The folder may hold the state of an interrupted run, which goes on with other random numbers.
    `make_pipeline` has the arguments of `RankingPipeline`, of which `arguments` are further ones.
    """
    # Keras warns about its file format on every save.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    states = random.getstate(), np.random.get_state()
    # With the numbers of its first epoch, a resumed run would read the same lists again.
    seed = config.seed + (len(read_history(run)) if (run / "backup").is_dir() else 0)
    builder = replace(builder, seed=seed)
    tf.keras.utils.set_random_seed(seed)
    if config.training.deterministic:
        tf.config.experimental.enable_op_determinism()
    policy = tf.keras.mixed_precision.global_policy()
    tf.keras.mixed_precision.set_global_policy(config.training.precision)
    try:
        model_builder = make_scorer(builder.folder, config).model_builder(name=config.model)
        pipeline = make_pipeline(model_builder, builder, config, run, console, **arguments)
        pipeline.train_and_validate()
    finally:
        tf.keras.mixed_precision.set_global_policy(policy)
        random.setstate(states[0])
        np.random.set_state(states[1])
    return pipeline


def _result(
    pipeline: RankingPipeline, config: RunConfig, folder: DataFolder, seconds: float
) -> dict[str, Any]:
    epochs = pipeline.history.epochs
    best = pipeline.history.best
    assert best is not None  # `RunHistory` raises otherwise
    return {
        "model": config.model,
        "data": str(folder.path.resolve()),
        "monitor": pipeline.monitor,
        "best_epoch": best["epoch"],
        "epochs": len(epochs),
        "best": {k: v for k, v in best.items() if k != "epoch"},
        "parameters": pipeline.model.count_params(),
        "seconds": round(seconds, 1),
        "train_lists": folder.num_lists("train"),
        "versions": {"tensorflow": tf.__version__, "tensorflow_ranking": tfr.__version__},
    }


def load_run(path: str | Path) -> LoadedRun:
    """Loads the model of a finished run with the weights of its best epoch.

    Raises:
        UserError: if there is no finished run in the folder.
    """
    run = finished_run(path)
    if run.config.model in BASELINE_NAMES:
        raise UserError(f"run {path}: {run.config.model} is not a neural model")
    return with_model(run)


def with_model(run: FinishedRun) -> LoadedRun:
    """Adds the model of a neural run, with the weights of its best epoch."""
    config = run.config
    policy = tf.keras.mixed_precision.global_policy()
    tf.keras.mixed_precision.set_global_policy(config.training.precision)
    try:
        with tf.variable_creator_scope(_zeros):
            model = make_scorer(DataFolder(run.path), config).build_model(name=config.model)
    finally:
        tf.keras.mixed_precision.set_global_policy(policy)
    weights = weights_path(run.path, run.metrics["best_epoch"])
    with reading(f"run {run.path}: the checkpoint {weights.relative_to(run.path)}"):
        status = model.load_weights(str(weights))
        status.expect_partial()
        status.assert_existing_objects_matched()
    return LoadedRun(**vars(run), model=single_score(model))


def _zeros(create: Callable[..., tf.Variable], **arguments: Any) -> tf.Variable:
    """Makes a variable of zeros: random values take longer, and are about to be replaced."""
    if (shape := arguments.get("shape")) is not None:
        arguments["initial_value"] = functools.partial(tf.zeros, shape, arguments["dtype"])
    return create(**arguments)
