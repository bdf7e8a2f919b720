"""A TFR ModelFitPipeline that takes its losses, metrics and callbacks from a RunConfig."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from tfr_moe import losses, metrics
from tfr_moe._compat import tf, tfr
from tfr_moe.config import RunConfig
from tfr_moe.errors import UserError
from tfr_moe.training.callbacks import DefinedLogs, EpochProgress, GateWarnings, RunHistory
from tfr_moe.training.distribute import ProcessContext, join_cluster, shard_batches
from tfr_moe.training.optimizers import learning_rate_drop, make_optimizer
from tfr_moe.training.position_bias import with_position_bias
from tfr_moe.utils.console import ProgressCallback, progress_bar


class RankingPipeline(tfr.keras.pipeline.MultiTaskPipeline):
    """Trains with `model.fit`, saves the best epoch, and resumes an interrupted run.

    A run with tasks has a loss, a weight and metrics for each output of its model; any other run
    has one loss. Files below `run`: `history.json` (an entry per epoch), `checkpoints/` (weights of
    the best epoch), `backup/` (state to resume from) and `tensorboard/`.

    Args:
        model_builder: a TFR model builder, such as `FeatureScorer.model_builder()`.
        dataset_builder: a TFR dataset builder, such as `ElwcDatasetBuilder`.
        config: configuration of the run.
        run: folder of the run.
        console: where progress is printed; None for stderr.
        context: strategy and cluster of this process; None creates those of the configuration.
        callbacks: called after those of the run.
        initialize: sets the weights of the new model; None leaves them random.
    """

    saves_weights = True
    """Whether the weights of the best epoch are kept."""

    def __init__(
        self,
        model_builder: Any,
        dataset_builder: Any,
        config: RunConfig,
        run: Path,
        console: Console | None = None,
        context: ProcessContext | None = None,
        callbacks: Sequence[tf.keras.callbacks.Callback] = (),
        initialize: Callable[[tf.keras.Model], None] | None = None,
    ):
        self._context = join_cluster(config.training.strategy) if context is None else context
        self.tasks = config.tasks_over(dataset_builder.schema)
        self.monitor = f"val_{config.training.monitor}"
        self.history = RunHistory(
            run,
            self.monitor,
            config.training.early_stopping_patience,
            self._context.run_folder(run),
            self.saves_weights,
        )
        # A run that was killed after its last epoch has nothing left to train.
        epochs = len(self.history.epochs) if self.history.exhausted else config.training.num_epochs
        hparams = tfr.keras.pipeline.PipelineHparams(
            model_dir=str(run),
            num_epochs=epochs,
            steps_per_epoch=config.training.steps_per_epoch,
            validation_steps=None,
            learning_rate=config.optimization.learning_rate,
            loss={task.name: task.loss for task in self.tasks} or config.objective.loss,
            loss_weights={task.name: task.weight for task in self.tasks} or None,
            steps_per_execution=config.training.steps_per_execution,
        )
        super().__init__(model_builder, dataset_builder, hparams)
        self._config = config
        self._callbacks = list(callbacks)
        self._initialize = initialize
        self._run = run
        self._console = console or Console(stderr=True)
        self._move_bar: ProgressCallback = lambda *_: None
        self.model: tf.keras.Model  # of `train_and_validate`

    def compiled_model(self) -> tf.keras.Model:
        """The model, compiled as `train_and_validate` compiles it, for a custom `fit`."""
        model = self._model_builder.build()
        if self._initialize is not None:
            self._initialize(model)
        if self._config.bias.position_bias:
            model = with_position_bias(model, self._dataset_builder.folder, self._config)
        model.compile(
            optimizer=make_optimizer(self._config),
            loss=self.build_loss(),
            metrics=self.build_metrics(),
            loss_weights=self._hparams.loss_weights,
            steps_per_execution=self._config.training.steps_per_execution,
        )
        # Otherwise the first step creates variables, and is traced twice.
        model.optimizer.build(model.trainable_variables)
        model.compiled_loss.build(model.output)
        # No layer, loss or metric has Python control flow over tensors, and converting their source
        # would take a fifth of a short training.
        for name in ("train_step", "test_step", "predict_step"):
            step = tf.autograph.experimental.do_not_convert(getattr(model, name))
            setattr(model, name, step)
        return model

    def build_loss(self) -> Any:
        """The loss of the run, or a dict of losses by task."""
        objective = self._config.objective
        if self.tasks:
            return {task.name: losses.get(task.loss, objective.max_label) for task in self.tasks}
        return losses.get(objective.loss, objective.max_label)

    def build_metrics(self) -> Any:
        """The metrics of the run, or a dict of metrics by task."""
        if self.tasks:
            return {task.name: [metrics.get(m) for m in task.metrics] for task in self.tasks}
        return [metrics.get(name) for name in self._config.training.metrics]

    def build_callbacks(self) -> list[tf.keras.callbacks.Callback]:
        """All callbacks; the history precedes the backup, so that it has every backed-up epoch."""
        callbacks = [DefinedLogs(self.tasks), *learning_rate_drop(self._config)]
        if self._context.is_leader:
            callbacks += [
                EpochProgress(self._console, self.monitor, self._move_bar),
                GateWarnings(self._console, self._config),
                tf.keras.callbacks.TensorBoard(str(self._run / "tensorboard"), write_graph=False),
            ]
        return [
            *callbacks,
            self.history,
            tf.keras.callbacks.BackupAndRestore(str(self._run / "backup"), delete_checkpoint=False),
            *self._callbacks,
        ]

    def train_and_validate(self, verbose: int = 0) -> None:
        """Trains under the strategy."""
        with self._context.strategy.scope():
            self.model = self.compiled_model()
            train = shard_batches(self._dataset_builder.build_train_dataset())
            valid = shard_batches(self._dataset_builder.build_valid_dataset())
            valid_batches = self._num_batches(valid)
            if valid_batches is not None:
                # Keras makes two iterators in each epoch over a data set that ends with its steps.
                valid = valid.repeat()
            with progress_bar(self._console, "training") as self._move_bar:
                # Keras' layers of single operations must be made with AutoGraph: only `fit` is
                # without it.
                fit = tf.autograph.experimental.do_not_convert(self.model.fit)
                fit(
                    train,
                    epochs=self._hparams.num_epochs,
                    steps_per_epoch=self._hparams.steps_per_epoch or self._num_batches(train),
                    validation_data=valid,
                    validation_steps=valid_batches,
                    callbacks=self.build_callbacks(),
                    verbose=verbose,
                )

    def _num_batches(self, dataset: tf.data.Dataset) -> int | None:
        """The number of batches of an epoch; None if it is not known."""
        count, steps = int(dataset.cardinality()), self._config.training.steps_per_execution
        if count >= 0:
            return count
        if tf.distribute.has_strategy() and steps > 1:
            raise UserError(
                "steps_per_execution must be 1 under a strategy if the data has no manifest with "
                f"its number of lists. Received: {steps}"
            )
        return None
