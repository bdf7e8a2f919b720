"""Ranker: trains, evaluates and applies a ranking model on data frames or data-set folders."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from tfr_moe._compat import tf
from tfr_moe.baselines import BaselineRun, open_run, train_any
from tfr_moe.config import RunConfig, make_config
from tfr_moe.data.builder import ElwcDatasetBuilder
from tfr_moe.data.folder import DataFolder, open_data
from tfr_moe.data.frames import (
    MAX_LIST_SIZE,
    MAX_LOST,
    given_roles,
    schema_of_frame,
    scoring_data,
    training_data,
)
from tfr_moe.errors import UserError
from tfr_moe.evaluation import evaluate_run, summarize
from tfr_moe.metrics.naming import DEFAULT_NAMES
from tfr_moe.schema import MASK, FeatureSchema, shard_file
from tfr_moe.scorers.multitask import SCORES
from tfr_moe.training import LoadedRun
from tfr_moe.training.callbacks import keras_history
from tfr_moe.training.run_folder import CONFIG_FILE, write_metrics
from tfr_moe.utils.console import make_log, progress_bar
from tfr_moe.utils.io import atomic_directory

if TYPE_CHECKING:
    import pandas as pd

    from tfr_moe.report.query_explanation import Explanation

_SPLIT = "frame"
_LOG = make_log(Console(stderr=True))


@dataclass(frozen=True)
class ScoredItem:
    """An item of `Ranker.rank`.

    Attributes:
        index: its index in the request, from 0.
        score: of the model; comparable within a list only.
        item: the item as given.
    """

    index: int
    score: float
    item: Mapping[str, Any]


class Ranker:
    """A ranking model with `fit`, `evaluate`, `predict` and `rank`.

    The same settings and rows give the same model as `tfr-moe build` and `tfr-moe train`, and
    `save` writes the same run folder. Parameters follow scikit-learn, `history` follows Keras.

    Args:
        model: a name of `tfr-moe models`: a neural ranker, or `lambdamart`, `xgboost`, `svm_rank`.
        warm_start: whether `fit` of a fitted ranker starts from its weights (`WarmStart`).
        **settings: settings by their flat names, see `tfr-moe settings MODEL`, and `preset`.

    Raises:
        UserError: for an unknown model or setting, or one that the model does not use.

    Example:
        >>> import pandas as pd
        >>> rows = [(q, price, float(price == 10)) for q in range(40) for price in (10, 25, 40)]
        >>> frame = pd.DataFrame(rows, columns=["query", "price", "click"])
        >>> ranker = Ranker("svm_rank").fit(frame, list_id="query", label="click", verbose=0)
        >>> ranker.rank({}, [{"price": 25}, {"price": 10}])[0].item
        {'price': 10}
    """

    def __init__(self, model: str = "adv_hsc_moe", warm_start: bool = False, **settings: Any):
        self._configure({"model": model, **settings}, warm_start)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._run: LoadedRun | BaselineRun | None = None

    def __getstate__(self) -> dict[str, Any]:
        """The state of a ranker that is not fitted; the run of another one is a folder."""
        if self._run is not None:
            raise UserError("a fitted ranker is not pickled or copied: use save and Ranker.load")
        return self.__dict__

    def _configure(self, params: dict[str, Any], warm_start: bool) -> None:
        self.config: RunConfig = make_config(params, "Ranker")
        self._params, self.warm_start = params, warm_start

    def __repr__(self) -> str:
        settings = "".join(f", {k}={v!r}" for k, v in self._params.items() if k != "model")
        return f"Ranker({self.config.model!r}{settings})"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Returns the arguments of the constructor as given; `deep` is ignored."""
        return {**self._params, "warm_start": self.warm_start}

    def set_params(self, **params: Any) -> Ranker:
        """Changes the model or settings for the next `fit`; a UserError as the constructor."""
        params = {**self.get_params(), **params}
        self._configure(params, params.pop("warm_start"))
        return self

    def fit(
        self,
        train: Any,
        validation: Any = None,
        *,
        schema: FeatureSchema | Mapping[str, Any] | str | Path | None = None,
        list_id: str | None = None,
        label: str | Sequence[str] | None = None,
        time: str | None = None,
        position: str | None = None,
        weight: str | None = None,
        hierarchy: Mapping[str, str] | None = None,
        ignore: str | Iterable[str] = (),
        validation_fraction: float = 0.1,
        max_list_size: int = MAX_LIST_SIZE,
        max_lost: float = MAX_LOST,
        callbacks: Sequence[tf.keras.callbacks.Callback] = (),
        verbose: int = 1,
    ) -> Ranker:
        """Trains the model and keeps the best epoch.

        Args:
            train: a pandas, polars or pyarrow data frame with one row per item, or a data-set
                folder of `tfr-moe build`.
            validation: a frame of the same columns; None takes lists from `train`: the latest ones
                where `time` is given, else by a hash of the list ID.
            schema: a `FeatureSchema`, a mapping or a file of one; None infers it from `train` and
                these columns, or with `warm_start` keeps that of the fitted model.
            list_id: column with the ID of the list.
            label: column with the relevance, >= 0; a list of columns for a multi-task model.
            time: column with the time of the list.
            position: column with the display position, from 1.
            weight: column with the weight of the item in the loss.
            hierarchy: `{"child": ..., "parent": ...}`, or `item.NAME`; None finds them.
            ignore: columns that are no features.
            validation_fraction: fraction of lists for validation, where `validation` is None.
            max_list_size: longer lists keep the items shown first.
            max_lost: largest share of positives cut, and of lists with several contexts.
            callbacks: Keras callbacks, called after those of the run.
            verbose: 0 prints nothing.

        Returns:
            The ranker.

        Raises:
            UserError: in one line, for data or settings that do not fit.
        """
        console = Console(stderr=True, quiet=not verbose)
        named = given_roles(
            ignore,
            list_id=list_id,
            label=label,
            time=time,
            position=position,
            weight=weight,
            hierarchy=hierarchy,
        )
        folder = tempfile.TemporaryDirectory(prefix="tfr_moe-")
        run = Path(folder.name) / "run"
        start = self._run.path if self._run is not None and self.warm_start else None
        if isinstance(train, (str, Path, DataFolder)):
            data = open_data(train, {**named, "schema": schema, "validation": validation})
        else:
            log = make_log(console)
            if start is not None and not named:
                schema = schema or self.schema
            described = schema_of_frame(train, schema, named, log)
            limits = (validation_fraction, max_list_size, max_lost)
            data = training_data(train, validation, described, run, *limits, log)
        train_any(data, run, self.config, console, callbacks=callbacks, start=start)
        self._open(run, folder)
        return self

    def _open(self, run: Path, folder: tempfile.TemporaryDirectory[str] | None = None) -> None:
        self._run = open_run(run)
        if self._folder is not None:
            self._folder.cleanup()
        self._folder = folder

    @property
    def run(self) -> LoadedRun | BaselineRun:
        """The trained run: its folder, configuration, schema, model and metrics.

        Raises:
            UserError: before `fit`.
        """
        if self._run is None:
            raise UserError("the ranker is not fitted; call fit, or Ranker.load")
        return self._run

    @property
    def schema(self) -> FeatureSchema:
        """The schema of the training data."""
        return self.run.schema

    @property
    def history(self) -> tf.keras.callbacks.History:
        """Losses and metrics by epoch, as of Keras; a baseline has one epoch, its best round."""
        return keras_history(self.run.path, self.run.metrics)

    def evaluate(
        self,
        data: Any,
        metrics: Sequence[str] | None = None,
        *,
        split: str = "test",
        policy: Any = "skip",
        batch_size: int = 128,
    ) -> dict[str, float]:
        """Returns the mean of each metric over lists, as `tfr-moe evaluate` computes it.

        Args:
            data: a frame with the columns of the training frame, or a data-set folder.
            metrics: a name of `tfr-moe metrics`, or several; None for the defaults. Those of a
                multi-task model are named `<task>_<metric>`.
            split: split of a data-set folder.
            policy: lists without a relevant item: `skip`, `zero` or `one`.
            batch_size: lists per batch.
        """
        names = [metrics] if isinstance(metrics, str) else list(metrics or DEFAULT_NAMES)
        folder, split = self._labelled(data, split)
        result = evaluate_run(folder, self.run, split, names, batch_size)
        return {name: summary.mean for name, summary in summarize(result, policy).items()}

    def predict(
        self, frame: Any, task: str | None = None, *, batch_size: int = 128
    ) -> NDArray[np.float32]:
        """Scores the rows of a frame.

        Args:
            frame: a frame with list ID and features, in any order, without labels.
            task: a label of a multi-task model; None combines its tasks by their weights.
            batch_size: lists per batch.

        Returns:
            A score for each row, in the order of the rows, float32 [rows]; higher is better, and
            comparable within a list only.
        """
        score = self._scorer(task)
        data, lists = scoring_data(frame, self.schema, _SPLIT, False, _LOG, self.run.categories)
        batches = ElwcDatasetBuilder(data, batch_size).build_parsed_dataset(_SPLIT)
        by_batch = [np.asarray(score(batch), np.float32)[batch[MASK].numpy()] for batch in batches]
        scores = np.empty(len(lists.rows), np.float32)
        scores[lists.rows] = np.concatenate(by_batch)
        return scores

    def rank(
        self,
        context: Mapping[str, Any],
        items: Sequence[Mapping[str, Any]],
        task: str | None = None,
    ) -> list[ScoredItem]:
        """Ranks the items of one request, as a server with the exported model does.

        Args:
            context: context feature -> value.
            items: for each item, example feature -> value.
            task: as for `predict`.

        Returns:
            The items, best first; equal scores keep the order of the request.

        Raises:
            UserError: naming the item and the feature that is unknown or invalid.
        """
        from tfr_moe.serving.client.request import RequestEncoder
        from tfr_moe.serving.export.parsing import RequestParser

        record = RequestEncoder(self.schema).encode(context, items)
        if not items:
            return []
        features = RequestParser(self.schema, self.run.categories).lists(tf.constant([record]))
        scores = np.asarray(self._scorer(task)(features), np.float32)[0, : len(items)]
        order = np.argsort(-scores, kind="stable").tolist()
        return [ScoredItem(index, float(scores[index]), items[index]) for index in order]

    def explain(
        self, context: Mapping[str, Any], items: Sequence[Mapping[str, Any]]
    ) -> Explanation:
        """Explains the order of one request's items; `print` the result, or `save` it as a page.

        Raises:
            UserError: for an invalid request, or one without items.
        """
        from tfr_moe.report.query_explanation import explain_query

        return explain_query(self.run, context, items)

    def importance(self, data: Any, *, split: str = "validation", **settings: Any) -> pd.DataFrame:
        """Measures what a metric loses when each feature is shuffled between lists.

        Args:
            data: a labelled frame of lists that the model was not trained on, or a data-set folder.
            split: split of a data-set folder.
            **settings: `metric`, `max_lists`, `repeats` and `seed`, see
                `tfr_moe.analysis.importance`, whose `Importance.frame` is returned.
        """
        from tfr_moe.analysis.importance import feature_importance

        folder, split = self._labelled(data, split)
        with progress_bar(Console(stderr=True), "importance of features") as move:
            return feature_importance(self.run, folder, split, **settings, move=move).frame()

    def _labelled(self, data: Any, split: str) -> tuple[DataFolder, str]:
        """A data-set folder or labelled frame, and the name of its split."""
        if isinstance(data, (str, Path, DataFolder)):
            return open_data(data), split
        run = self.run
        return scoring_data(data, run.schema, _SPLIT, True, _LOG, run.categories)[0], _SPLIT

    def _scorer(self, task: str | None) -> Callable[..., Any]:
        """The function from features to the scores [B, L] of a task, or of all combined."""
        score, tasks = self.run.score, self.run.task_names
        if task is not None and task not in tasks:
            allowed = f"must be one of {', '.join(tasks)}" if tasks else "the model has no tasks"
            raise UserError(f"task {task!r}: {allowed}")
        if not tasks:
            return score
        output = SCORES if task is None else f"{SCORES}_{task}"
        return lambda features: score(features)[output]

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes the run folder, which `tfr-moe evaluate`, `export` and `report` read.

        Raises:
            UserError: if the folder exists and is not empty, unless `overwrite` is set.
        """
        run, path = self.run.path, Path(path)
        with atomic_directory(path, CONFIG_FILE if overwrite else None) as partial:
            shutil.copytree(run, partial, dirs_exist_ok=True)
            if self._sampled():
                write_metrics(partial, {**self.run.metrics, "data": str(path.resolve())})
        self._open(path)

    def _sampled(self) -> bool:
        """Whether the run keeps a sample of its validation lists, as one trained on frames does."""
        return (self.run.path / shard_file("validation", 0, 1)).is_file()

    @classmethod
    def load(cls, path: str | Path) -> Ranker:
        """Loads a run folder of `save` or of `tfr-moe train`.

        Raises:
            UserError: if there is no finished run in the folder.
        """
        run = open_run(path)
        settings = run.config.changed()
        settings.pop("max_label", None)  # of the data of that run
        ranker = cls(**settings)
        ranker._open(run.path)
        return ranker

    def export(self, out: str | Path, *, version: int | None = None, verbose: int = 1) -> Path:
        """Exports a version for TensorFlow Serving, verified in a fresh process.

        Args:
            out: `MODELS/NAME`.
            version: number of the version; None for the next one.
            verbose: 0 prints nothing.

        Returns:
            The folder of the version.

        Raises:
            UserError: for an existing version, or an export that disagrees with the model.
        """
        from tfr_moe.serving.export import export_run

        console = Console(stderr=True, quiet=not verbose)
        data = self.run.path if self._sampled() else None
        return export_run(self.run.path, out, data, version, console)
