"""A TFR ModelFitPipeline that takes its losses, metrics and callbacks from a RunConfig."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from tfr_moe import losses, metrics
from tfr_moe._compat import tf, tfr
from tfr_moe.config import RunConfig
from tfr_moe.errors import UserError
from tfr_moe.levels import single_score
from tfr_moe.tasks import metric_of
from tfr_moe.training.input_share import InputShare
from tfr_moe.training.ledger import DropMissing, Ledger, TaskMeans, weights_path
from tfr_moe.training.optimizers import learning_rate_drop, make_optimizer
from tfr_moe.training.progress import EpochLines, GateWatch, ProgressLines, no_bar_left
from tfr_moe.training.strategy import LeaderValidation, Place, join, sharded

_PROFILED_STEPS = (5, 15)  # the first ones make graphs and buffers


class RankingPipeline(tfr.keras.pipeline.MultiTaskPipeline):
    """Trains with `model.fit`, keeps the best epoch, and resumes after a kill.

    A run with tasks has a loss, a weight and metrics for each of its model's outputs; any other run
    has one of each. A metric that tasks share is also shown as its mean over them.

    What it writes below `run`: `history.json` (an entry per epoch), `checkpoints/` (weights of the
    best epoch), `backup/` (state to resume from), `tensorboard/` and, at the
    end, `saved_model/` with TFR's signatures.

    Args:
        model_builder: a TFR model builder, such as `FeatureScorer.model_builder()`.
        dataset_builder: a TFR dataset builder, such as `ElwcDatasetBuilder`.
        config: the run's settings.
        run: the run's folder.
        console: where progress goes; None for stderr.
        steps: steps of an epoch where known, for the progress bar.
        place: where this process stands among those that train together; None makes the strategy of the
            settings, for this process alone or by `TF_CONFIG`.
    """

    def __init__(
        self,
        model_builder: Any,
        dataset_builder: Any,
        config: RunConfig,
        run: Path,
        console: Console | None = None,
        steps: int | None = None,
        place: Place | None = None,
    ):
        self._place = join(config.strategy) if place is None else place
        self.tasks = config.tasks_over(dataset_builder.schema)
        self.monitor = f"val_{config.monitor}"
        metric = (
            metric_of(config.monitor, self.tasks) if self._by_metric(config) else config.monitor
        )
        self.higher = config.monitor != "loss" and metrics.higher_is_better(metric)
        self.ledger = Ledger(
            run, self.monitor, self.higher, config.early_stopping_patience, self._place.folder(run)
        )
        # A run that was killed after its last epoch has only its end left to do.
        epochs = len(self.ledger.epochs) if self.ledger.exhausted else config.num_epochs
        hparams = tfr.keras.pipeline.PipelineHparams(
            model_dir=str(run),
            num_epochs=epochs,
            steps_per_epoch=config.steps_per_epoch,
            validation_steps=None,
            learning_rate=config.learning_rate,
            loss={task.name: task.loss for task in self.tasks} or config.loss,
            loss_weights={task.name: task.weight for task in self.tasks} or None,
            steps_per_execution=config.steps_per_execution,
        )
        super().__init__(model_builder, dataset_builder, hparams)
        # Made before, since workers must find each other before TensorFlow has computed anything.
        self._strategy = self._place.strategy
        self._config = config
        self._max_label = config.max_label
        self._run = run
        self._console = console or Console(stderr=True)
        self._input = InputShare(self._console, run)
        self._steps = config.steps_per_epoch or steps
        self.model: tf.keras.Model | None = None

    def compiled_model(self) -> tf.keras.Model:
        """The model, compiled as `train_and_validate` compiles it, for a `fit` of one's own."""
        model = self._model_builder.build()
        model.compile(
            # What is compiled by XLA can't reach from a worker into a parameter server.
            optimizer=make_optimizer(self._config, compiled=not self._place.asynchronous),
            loss=self.build_loss(),
            metrics=self.build_metrics(),
            loss_weights=self._hparams.loss_weights,
            steps_per_execution=self._config.steps_per_execution,
        )
        # A step that makes variables, as its first does for what is not built, is traced twice.
        model.optimizer.build(model.trainable_variables)
        model.compiled_loss.build(model.output)
        return model

    def _by_metric(self, config: RunConfig) -> bool:
        return bool(self.tasks) and config.monitor != "loss"

    def build_loss(self) -> Any:
        """The run's loss, or a dict of them by task."""
        if self.tasks:
            return {task.name: losses.get(task.loss, self._max_label) for task in self.tasks}
        return losses.get(self._config.loss, self._max_label)

    def build_metrics(self) -> Any:
        """The run's metrics, or a dict of them by task."""
        if self.tasks:
            return {task.name: [metrics.get(m) for m in task.metrics] for task in self.tasks}
        return [metrics.get(name) for name in self._config.metrics]

    def build_weighted_metrics(self) -> list[Any]:
        """None: weights are for the loss."""
        return []

    def build_callbacks(self) -> list[tf.keras.callbacks.Callback]:
        """The ledger comes before the backup, so that no backed-up epoch is missing from it."""
        return [
            TaskMeans(self.tasks),
            DropMissing(),
            *self._watching(),
            *learning_rate_drop(self._config),
            self.ledger,
            tf.keras.callbacks.BackupAndRestore(str(self._run / "backup"), delete_checkpoint=False),
            *self._logging(),
        ]

    def _watching(self) -> list[tf.keras.callbacks.Callback]:
        if not self._place.leads:
            return []
        epochs = self._config.num_epochs
        # A chief hears of steps only when the epoch is over.
        lines = (
            EpochLines(self._console, epochs, self.monitor)
            if self._place.asynchronous
            else ProgressLines(self._console, epochs, self.monitor, self._steps)
        )
        return [lines, GateWatch(self._console, self._config)]

    def _logging(self) -> list[tf.keras.callbacks.Callback]:
        if not self._place.leads:
            return []
        return [
            tf.keras.callbacks.TensorBoard(
                str(self._run / "tensorboard"),
                write_graph=False,
                profile_batch=_PROFILED_STEPS if self._config.profile else 0,
            ),
            *([self._input] if self._config.profile else []),
        ]

    def _watched(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        return self._input.timed(dataset) if self._config.profile else dataset

    def train_and_validate(self, verbose: int = 0) -> None:
        """Trains under the strategy; the leader then exports the best epoch."""
        fit = self._fit_asynchronously if self._place.asynchronous else self._fit
        fit(verbose)
        if self._place.leads:
            # A model of its own: what a strategy holds can only be read by all workers together.
            model = self.model if self._strategy is None else self._model_builder.build()
            self.export_saved_model(model, str(self._run / "saved_model"))

    def _fit(self, verbose: int) -> None:
        with self._place.scope():
            self.model = self.compiled_model()
            builder = self._dataset_builder
            train = self._watched(sharded(builder.build_train_dataset(), self._place))
            valid = sharded(builder.build_valid_dataset(), self._place)
            callbacks = self.build_callbacks()
            with no_bar_left(callbacks):
                self.model.fit(
                    train,
                    epochs=self._hparams.num_epochs,
                    steps_per_epoch=self._hparams.steps_per_epoch or self._counted(train),
                    validation_data=valid,
                    validation_steps=self._counted(valid),
                    callbacks=callbacks,
                    verbose=verbose,
                )

    def _counted(self, dataset: tf.data.Dataset) -> int | None:
        """The number of batches, where Keras can't tell by itself and has to know."""
        if self._strategy is None or self._config.steps_per_execution == 1:
            return None
        count = int(dataset.cardinality())
        if count < 0:
            raise UserError(
                "steps_per_execution must be 1 under a strategy where the data has no manifest that "
                f"counts its lists, got {self._config.steps_per_execution}"
            )
        return count

    def _fit_asynchronously(self, verbose: int) -> None:
        if self._steps is None:
            raise UserError(
                f"strategy {self._config.strategy} needs steps_per_epoch where the data has no "
                "manifest that counts its lists"
            )
        builder = self._dataset_builder
        judge = LeaderValidation(self.compiled_model(), builder.build_valid_dataset())
        with self._place.scope():
            self.model = self.compiled_model()
            self.model.fit(
                tf.keras.utils.experimental.DatasetCreator(
                    lambda context: builder.build_train_dataset()
                ),
                epochs=self._hparams.num_epochs,
                steps_per_epoch=self._steps,
                callbacks=[judge, *self.build_callbacks()],
                verbose=verbose,
            )

    def export_saved_model(
        self, model: tf.keras.Model, export_to: str, checkpoint: Any = None
    ) -> None:
        """Saves the best epoch below `saved_model/`, whatever TFR's default place is."""
        best = self.ledger.best
        if best is not None:
            weights = weights_path(self._run, best["epoch"])
            model.load_weights(str(weights)).expect_partial()
        self.model = model
        served = single_score(model)
        served.save(
            str(self._run / "saved_model"),
            signatures=self._dataset_builder.build_signatures(served),
            include_optimizer=False,
            save_traces=False,
        )
