"""Baselines as runs: training into a run folder, and scoring for evaluation."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from rich.console import Console

from tfr_moe._compat import tf
from tfr_moe.baselines import boosting, lambdamart, svm_rank
from tfr_moe.baselines.rows import RowRanker, Rows, TabularEncoder, write_rows
from tfr_moe.config import BASELINE_NAMES, RunConfig
from tfr_moe.data.folder import DataFolder, open_data
from tfr_moe.errors import UserError
from tfr_moe.metrics.per_list import ListBatch, resolve
from tfr_moe.schema import MASK
from tfr_moe.training.run import LoadedRun, check_names, train, warn_of_constants, with_model
from tfr_moe.training.run_folder import FinishedRun, finish, finished_run, prepared
from tfr_moe.utils.console import make_log, progress_bar
from tfr_moe.utils.failures import file_errors, reading
from tfr_moe.utils.io import working_directory

MODULES: dict[str, ModuleType] = {
    "lambdamart": lambdamart,
    "xgboost": boosting,
    "svm_rank": svm_rank,
}

METRIC = "ndcg_10"
"""The metric of the validation lists in `metrics.json`."""


@dataclass(frozen=True)
class BaselineRun(FinishedRun):
    """A finished run of a baseline, with its ranker of rows and the encoder that makes them."""

    ranker: RowRanker
    encoder: TabularEncoder

    def score(self, features: Mapping[str, Any]) -> Any:
        """Features by name, with the mask [B, L] -> scores, float32 [B, L], 0 for padded items."""
        return _scored(lambda rows: self.ranker.predict(rows.numpy()), self.encoder, features)

    def served_model(self) -> tf.keras.Model:
        """The same function as a Keras model, whose graph does not need the library."""
        return _RowModel(self.ranker.graph(), self.encoder)


class _RowModel(tf.keras.Model):
    """See `BaselineRun.score`."""

    def __init__(self, score: Callable[[tf.Tensor], tf.Tensor], encoder: TabularEncoder):
        super().__init__()
        self._score, self._encoder = score, encoder
        # Keras saves the tables of layers that are attributes.
        self.lookups = list(encoder.lookups.values())

    def call(self, features: Mapping[str, tf.Tensor]) -> tf.Tensor:
        return _scored(self._score, self._encoder, features)


def _scored(
    score: Callable[[tf.Tensor], Any], encoder: TabularEncoder, features: Mapping[str, Any]
) -> tf.Tensor:
    """The scores [B, L] of lists by a function from their rows [T, columns] to scores [T]."""
    mask = features[MASK]
    scores = tf.cast(score(encoder(features, mask)), tf.float32)
    return tf.scatter_nd(tf.where(mask), scores, tf.shape(mask, tf.int64))


def mean_metric(ranker: RowRanker, rows: Rows) -> float:
    """The mean of `METRIC` over the lists of `rows` on which it is defined, as `evaluate` has it.

    NaN if it is defined on no list. The libraries' own numbers count lists without a relevant item.
    """
    metric, values = resolve(METRIC), []
    for block, sizes in rows.blocks():
        mask = np.arange(sizes.max()) < sizes[:, np.newaxis]
        scores, labels = np.zeros(mask.shape), np.zeros(mask.shape)
        scores[mask] = ranker.predict(np.asarray(rows.values[block]))
        labels[mask] = rows.labels[block]
        values.append(metric(ListBatch(scores, labels, mask, np.array([""] * len(sizes)))))
    defined = np.concatenate(values)
    defined = defined[~np.isnan(defined)]
    return float(defined.mean()) if len(defined) else float("nan")


def train_baseline(
    data: str | Path | DataFolder,
    run: str | Path,
    config: RunConfig,
    console: Console | None = None,
) -> dict[str, Any]:
    """Trains a baseline on a data set, as `train` does; an interrupted run starts again.

    Of the configuration, `seed`, `library_parameters`, settings of features and, for LightGBM,
    `position_bias` are used. The splits are written as rows to a temporary folder in `run` and
    memory-mapped, so that only the binned copy of the library is in memory.
    """
    console = console or Console(stderr=True)
    run, folder = Path(run), open_data(data)
    folder.files("validation")
    check_names(config, folder.schema)
    warn_of_constants(config, folder, console)
    module = MODULES[config.model]
    settings = module.settings_of(config.baseline.library_parameters, config.seed)
    started = time.monotonic()
    with (
        file_errors(f"run {run}"),
        prepared(run, folder, config),
        working_directory(run / "rows") as out,
    ):
        with progress_bar(console, "reading train") as move:
            with_positions = bool(config.bias.position_bias)
            train = write_rows(folder, "train", out, move, config.features, with_positions)
        with progress_bar(console, "reading validation") as move:
            validation = write_rows(folder, "validation", out, move, config.features)
        fitted = module.fit(train, validation, settings, make_log(console))
        rows, lists = len(train.labels), len(train.sizes)
        best = {f"val_{METRIC}": mean_metric(fitted.ranker, validation)}
    fitted.ranker.save(run / module.FILE)
    result = {
        "model": config.model,
        "data": str(folder.path.resolve()),
        "monitor": f"val_{METRIC}",
        "best_epoch": fitted.best_round,
        "epochs": fitted.rounds,
        "best": best,
        "parameters": fitted.parameters,
        "seconds": round(time.monotonic() - started, 1),
        "train_lists": lists,
        "train_rows": rows,
    }
    finish(run, folder, result, [run / module.FILE])
    return result


def train_any(
    data: str | Path | DataFolder,
    run: str | Path,
    config: RunConfig,
    console: Console | None = None,
    callbacks: Sequence[tf.keras.callbacks.Callback] = (),
    start: str | Path | None = None,
) -> dict[str, Any]:
    """Trains a baseline or a neural model; callbacks and `start` are for the latter only."""
    if config.model not in BASELINE_NAMES:
        return train(data, run, config, console, callbacks, start)
    if callbacks:
        raise UserError(f"callbacks: model {config.model!r} is not trained by Keras")
    if start is not None:
        raise UserError(f"model {config.model!r} cannot start from another run")
    return train_baseline(data, run, config, console)


def open_run(run: str | Path) -> LoadedRun | BaselineRun:
    """Loads a finished run of any model; a UserError if there is none in the folder."""
    return load_model(finished_run(run))


def load_model(finished: FinishedRun) -> LoadedRun | BaselineRun:
    """Adds the model of a run, whose files were checked when it was read."""
    path, config = finished.path, finished.config
    if config.model not in BASELINE_NAMES:
        return with_model(finished)
    module, folder = MODULES[config.model], DataFolder(path)
    encoder = TabularEncoder(folder.schema, folder.tables(), config.features)
    with reading(f"run {path}: {module.FILE}"):
        ranker = module.load(path / module.FILE, encoder.columns)
    return BaselineRun(**vars(finished), ranker=ranker, encoder=encoder)
