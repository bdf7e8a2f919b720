"""The graphs of a trained model, which a later trial of the same process uses again."""

from __future__ import annotations

import gc
import itertools

from tfr_moe._compat import tf
from tfr_moe.config import RunConfig

_DRAWING = ("Random", "Normal", "Multinomial")  # in the names of operations
_LARGEST = 2**24  # parameters; two models are in memory while a trial starts


class TracedModel:
    """The last model that a process has trained, for the next trial whose graphs are the same.

    Tracing takes a third of a short trial. Trials of equal settings but their learning rate, seed
    and number of epochs have the same graphs, unless the graph of a step draws random numbers: it
    would go on with those that come after the earlier trial's.
    """

    def __init__(self) -> None:
        self._settings: RunConfig | None = None
        self._model: tf.keras.Model | None = None

    def keep(self, config: RunConfig, model: tf.keras.Model) -> None:
        """Keeps a model that was trained with `config`, if it can be used again and is not large.

        `model.draws` is that of the graph of its steps; a trial that was killed after its last
        epoch has traced none.
        """
        is_local = config.training.strategy is None
        if is_local and not getattr(model, "draws", True) and model.count_params() <= _LARGEST:
            self._settings, self._model = _settings_of_graphs(config), model

    def take(self, config: RunConfig) -> tf.keras.Model | None:
        """Returns the model if it has the graphs of `config`; in any case it is kept no longer."""
        model, self._model = self._model, None
        if model is None or self._settings == _settings_of_graphs(config):
            return model
        del model
        gc.collect()  # before another one takes memory
        return None


def restart(model: tf.keras.Model, start: tf.keras.Model) -> None:
    """Gives a trained model the weights, optimizer state and learning rate of a new one."""
    before = [*model.variables, *model.optimizer.variables]
    for variable, value in zip(before, [*start.variables, *start.optimizer.variables], strict=True):
        variable.assign(value)
    model.optimizer.learning_rate = start.optimizer.learning_rate.numpy()


def draws(graph: tf.Graph) -> bool:
    """Whether a graph, or a function that it calls, draws random numbers."""
    definition = graph.as_graph_def()
    bodies = (function.node_def for function in definition.library.function)
    nodes = itertools.chain(definition.node, *bodies)
    return any(word in node.op for node in nodes for word in _DRAWING)


def _settings_of_graphs(config: RunConfig) -> RunConfig:
    """The configuration with fixed values for what no graph depends on."""
    optimization = config.optimization.model_copy(update={"learning_rate": 1.0})
    training = config.training.model_copy(update={"num_epochs": 1})
    fixed = {"seed": 0, "optimization": optimization, "training": training}
    return config.model_copy(update=fixed)
