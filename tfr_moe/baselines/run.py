"""A baseline as a run: the folder that training leaves, and the scores that evaluation asks it for."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from rich.console import Console

from tfr_moe._compat import tf
from tfr_moe.baselines import boosting, lambdamart, svm_rank
from tfr_moe.baselines.columns import RowEncoder
from tfr_moe.baselines.library import Ranker
from tfr_moe.baselines.rows import Rows, write_rows
from tfr_moe.cluster import Cluster
from tfr_moe.config import BASELINE_NAMES, RunConfig, load_config
from tfr_moe.data import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.folders import read_json, write_json
from tfr_moe.schema import MASK, FeatureSchema
from tfr_moe.training.run import CONFIG_FILE, METRICS_FILE, prepare, train

MODULES: dict[str, ModuleType] = {
    "lambdamart": lambdamart,
    "xgboost": boosting,
    "svm_rank": svm_rank,
}


class BaselineRun(NamedTuple):
    """A trained baseline.

    Attributes:
        path: its folder.
        config: its settings.
        schema: the schema of its data.
        ranker: what scores rows.
        encoder: what makes them.
        metrics: the content of `metrics.json`.
    """

    path: Path
    config: RunConfig
    schema: FeatureSchema
    ranker: Ranker
    encoder: RowEncoder
    metrics: dict[str, Any]

    def score(self, features: Mapping[str, Any]) -> Any:
        """Features by name with the mask [B, L] -> scores, float32 [B, L], 0 at padded items."""
        mask = features[MASK]
        values = self.ranker.predict(self.encoder(dict(features), mask))
        return tf.scatter_nd(
            tf.where(mask), tf.constant(values, tf.float32), tf.shape(mask, tf.int64)
        )


def _rows(folder: DataFolder, split: str, out: Path, config: RunConfig, console: Console) -> Rows:
    with console.status(f"reading {split}") as status:

        def report(done: int, total: int | None) -> None:
            status.update(f"reading {split}: {done} of {total or '?'} lists")

        return write_rows(folder, split, out, report, config.ignored_features)


def train_baseline(
    data: str | Path, run: str | Path, config: RunConfig, console: Console | None = None
) -> dict[str, Any]:
    """Trains a baseline on a data-set folder; one that was killed begins afresh.

    The splits are written as rows to a temporary folder in `run` and mapped into memory, so that
    memory is that of the library's own, binned copy.

    Args:
        data: the data-set folder.
        run: the run's folder; made if it is not there.
        config: the settings; of a baseline `seed`, `library_parameters`, `ignored_features`.
        console: where progress goes; None for stderr.

    Returns:
        What `metrics.json` holds.

    Raises:
        UserError: for settings, data or a folder that don't fit, or a library that is not there.
    """
    console = console or Console(stderr=True)
    run, folder = Path(run), DataFolder(data)
    folder.files("validation")
    module = MODULES[config.model]
    prepare(run, folder, config)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=".rows-", dir=run) as scratch:
        train, validation = (
            _rows(folder, split, Path(scratch), config, console)
            for split in ("train", "validation")
        )
        fitted = module.fit(
            train,
            validation,
            config.library_parameters,
            config.seed,
            lambda line: console.print(line, highlight=False, soft_wrap=True),
        )
        rows, lists = len(train.labels), len(train.sizes)
    fitted.ranker.save(run / module.FILE)
    result = {
        "model": config.model,
        "data": str(folder.path.resolve()),
        "monitor": next(iter(fitted.best)),
        "best_epoch": fitted.best_round,
        "epochs": fitted.rounds,
        "best": fitted.best,
        "parameters": fitted.parameters,
        "seconds": round(time.monotonic() - started, 1),
        "train_lists": lists,
        "train_rows": rows,
    }
    write_json(run / METRICS_FILE, result)
    return result


def train_any(
    data: str | Path,
    run: str | Path,
    config: RunConfig,
    console: Console | None = None,
    cluster: Cluster | None = None,
) -> dict[str, Any]:
    """Trains the model that the settings name, a baseline or a neural one; see `train_baseline`, `train`."""
    if config.model in BASELINE_NAMES:
        return train_baseline(data, run, config, console)
    return train(data, run, config, console, cluster)


def load_baseline(path: str | Path) -> BaselineRun:
    """Reads a finished baseline.

    Raises:
        UserError: if there is none, or its library is not installed.
    """
    path = Path(path)
    result = read_json(path / METRICS_FILE)
    if result is None:
        raise UserError(
            f"run {path}: is not finished; `tfr-moe train` with the same --out begins it"
        )
    config = load_config(path / CONFIG_FILE)
    module, folder = MODULES[config.model], DataFolder(path)
    encoder = RowEncoder(folder.schema, folder.tables(), config.ignored_features)
    ranker = module.load(path / module.FILE)
    return BaselineRun(path, config, folder.schema, ranker, encoder, result)
