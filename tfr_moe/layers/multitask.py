"""The multi-task models of the MMoE paper that share nothing, a bottom, or experts.

Ma et al. 2018, "Modeling Task Relationships in Multi-task Learning with Multi-gate Mixture-of-Experts"
(KDD). Every model ends in one tower per task and gives one logit per task:

    y_k = h_k(f_k(x)),   k = 1 .. number of tasks

What differs is f_k, what the towers h_k stand on. The models that share by a penalty, by stitches or by
factors are in `multitask_sharing`, the mixture gated by category in `multitask_category`.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.layers.diversity import expert_correlation
from tfr_moe.layers.experts import ExpertTowers
from tfr_moe.layers.monitoring import GateMonitor, TrainingMean
from tfr_moe.layers.rows import put_rows, take_rows
from tfr_moe.layers.stacks import glorot_uniform


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class TaskTowers(ExpertTowers):
    """One network per task, each on an input of its own or all on the same.

    Args are those of `ExpertTowers`, `num_experts` being the number of tasks.

    Example:
        >>> TaskTowers(num_experts=2, hidden_dims=[4])(tf.ones([5, 2, 3])).shape
        TensorShape([5, 2])
    """

    def call(self, inputs: Any, training: bool = False) -> Any:  # type: ignore[override]
        """Inputs [T, tasks, n], or [T, n] for all tasks -> [T, tasks], [T, tasks, h] if hidden."""
        return self._logits(self.every(inputs, training))


class MultiTaskLayer(tf.keras.layers.Layer, metaclass=abc.ABCMeta):
    """What the models have in common: their settings, experts and towers.

    Args:
        num_tasks: number of tasks, >= 1.
        hidden_dims: widths of the layers below the towers: of the bottom, or of each expert.
        tower_hidden_dims: widths of the hidden layers of each task's tower; empty for a linear one.
        activation: Keras name of the hidden activation.
        dropout: share of hidden units dropped in training.
        seed: seed of initialisation and dropout.
        task_names: names of the tasks in what is shown while training; by default `task_0`, ...
        num_outputs: logits that a tower gives for an item, such as one for each grade
            (`tfr_moe.levels`).

    Raises:
        ValueError: for no tasks, no outputs, no `hidden_dims`, or names that are not one per task.
    """

    def __init__(
        self,
        num_tasks: int,
        hidden_dims: Sequence[int] = (256,),
        tower_hidden_dims: Sequence[int] = (64,),
        activation: str = "relu",
        dropout: float = 0.0,
        seed: int | None = None,
        task_names: Sequence[str] | None = None,
        num_outputs: int = 1,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if num_tasks < 1:
            raise ValueError(f"num_tasks must be >= 1. Received: num_tasks={num_tasks}")
        if num_outputs < 1:
            raise ValueError(f"num_outputs must be >= 1. Received: num_outputs={num_outputs}")
        if not hidden_dims:
            raise ValueError("hidden_dims must name a layer. Received: hidden_dims=()")
        if task_names is not None and len(task_names) != num_tasks:
            raise ValueError(
                f"task_names must be {num_tasks} names. Received: task_names={tuple(task_names)}"
            )
        self.num_tasks = num_tasks
        self.hidden_dims = tuple(hidden_dims)
        self.tower_hidden_dims = tuple(tower_hidden_dims)
        self.activation = activation
        self.dropout = dropout
        self.seed = seed
        self.task_names = tuple(task_names or (f"task_{k}" for k in range(num_tasks)))
        self.num_outputs = num_outputs

    @abc.abstractmethod
    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Logits, float32 [..., tasks] or [..., tasks, num_outputs], of inputs [..., n]."""

    def _experts(self, count: int, hidden_dims: Sequence[int], name: str, hidden: bool) -> Any:
        return self._make(ExpertTowers, count, hidden_dims, 0, hidden, name)

    def _tasks(
        self, hidden_dims: Sequence[int], name: str, offset: int = 0, hidden: bool = False
    ) -> TaskTowers:
        return self._make(TaskTowers, self.num_tasks, hidden_dims, offset, hidden, name)

    def _make(
        self,
        kind: type[ExpertTowers],
        count: int,
        hidden_dims: Sequence[int],
        offset: int,
        hidden: bool,
        name: str,
    ) -> Any:
        return kind(
            count,
            hidden_dims,
            self.activation,
            self.dropout,
            self._offset(offset),
            hidden_output=hidden,
            num_outputs=1 if hidden else self.num_outputs,
            name=name,
            dtype=self.dtype_policy,
        )

    def _towers(self) -> TaskTowers:
        return self._tasks(self.tower_hidden_dims, "task_towers", offset=100)

    def _offset(self, offset: int) -> int | None:
        """A seed apart from those of the other parts."""
        return None if self.seed is None else self.seed + offset

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "num_tasks": self.num_tasks,
            "hidden_dims": list(self.hidden_dims),
            "tower_hidden_dims": list(self.tower_hidden_dims),
            "activation": self.activation,
            "dropout": self.dropout,
            "seed": self.seed,
            "task_names": list(self.task_names),
            "num_outputs": self.num_outputs,
        }


class ItemwiseMultiTask(MultiTaskLayer, metaclass=abc.ABCMeta):
    """A model that scores each item by itself. Args are those of `MultiTaskLayer`."""

    @abc.abstractmethod
    def _score(self, rows: Any, training: bool) -> Any:
        """Logits [T, tasks], or with several outputs [T, tasks, num_outputs], of the rows [T, n]."""

    def call(self, inputs: Any, mask: Any = None, training: bool = False) -> Any:
        """Scores the valid items for every task.

        Args:
            inputs: [B, n], or [B, L, n] for lists.
            mask: bool [B] or [B, L], True at valid items; None takes every item as valid.
            training: whether dropout, added losses and metrics are active.

        Returns:
            Logits, float32 [B, tasks] or [B, L, tasks], 0 at padded items; with several outputs
            they are the last axis.
        """
        rows, places = take_rows(inputs, mask)
        return put_rows(tf.cast(self._score(rows, training), tf.float32), places, inputs)


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class SingleTask(ItemwiseMultiTask):
    """A network of its own for every task, y_k = h_k(f_k(x)), and nothing shared.

    Args are those of `MultiTaskLayer`.

    Example:
        >>> SingleTask(num_tasks=2, hidden_dims=[8])(tf.ones([3, 5])).shape
        TensorShape([3, 2])
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        layers = (*self.hidden_dims, *self.tower_hidden_dims)
        self.networks = self._tasks(layers, "networks")

    def _score(self, rows: Any, training: bool) -> Any:
        return self.networks(rows, training=training)


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class SharedBottom(ItemwiseMultiTask):
    """One bottom f for all tasks and a tower for each, y_k = h_k(f(x)) (Caruana; eq. 1 of Ma et al.).

    Args are those of `MultiTaskLayer`.

    Example:
        >>> SharedBottom(num_tasks=2, hidden_dims=[8])(tf.ones([3, 4, 5])).shape
        TensorShape([3, 4, 2])
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.bottom = self._experts(1, self.hidden_dims, "bottom", hidden=True)
        self.towers = self._towers()

    def _score(self, rows: Any, training: bool) -> Any:
        shared = self.bottom(rows, training=training)[:, 0]
        return self.towers(shared, training=training)


class MixtureOfTasks(ItemwiseMultiTask, metaclass=abc.ABCMeta):
    """Experts under softmax gates, of which OMoE has one and MMoE one per task.

    Gates and mixing run in float32 under every precision policy. In training the layer shows the
    metrics of `GateMonitor` and `expert_correlation` (see `tfr_moe.layers.diversity`).

    Args:
        num_experts: N.
        **kwargs: see `MultiTaskLayer`; `hidden_dims` are those of each expert.
    """

    def __init__(self, num_tasks: int, *args: Any, num_experts: int = 8, **kwargs: Any):
        super().__init__(num_tasks, *args, **kwargs)
        self.num_experts = num_experts
        self.experts = self._experts(num_experts, self.hidden_dims, "experts", hidden=True)
        self.towers = self._towers()
        self.monitor = GateMonitor(num_experts, gates=self._gates(), name="gates", dtype="float32")
        self._correlation = TrainingMean(name="expert_correlation")

    @abc.abstractmethod
    def _gates(self) -> tuple[str, ...]:
        """The names of the gates."""

    def build(self, input_shape: Any) -> None:
        """Creates the gates' kernel, [gates, n, N], glorot-uniform for each gate; no bias."""
        width = int(input_shape[-1])
        self.gate_kernel = self.add_weight(
            "gate_kernel",
            [len(self._gates()), width, self.num_experts],
            initializer=glorot_uniform(width, self.num_experts, self._offset(200)),
        )
        super().build(input_shape)

    def gate(self, rows: Any) -> Any:
        """Gate weights of rows [T, n], float32 [T, gates, N]; they sum to 1 over the experts."""
        kernel = tf.cast(self.gate_kernel, tf.float32)
        return tf.nn.softmax(tf.einsum("tn,gne->tge", tf.cast(rows, tf.float32), kernel))

    @property
    def gate_names(self) -> tuple[str, ...]:
        """Names of the gates: the tasks, or "" for the one gate of all of them."""
        return self._gates()

    def gate_of_items(self, inputs: Any, mask: Any) -> Any:
        """Gate weights of items, float32 [B, L, gates, N], of inputs [B, L, n]; 0 at padded items."""
        rows, places = take_rows(inputs, mask)
        return put_rows(self.gate(rows), places, inputs)

    def _score(self, rows: Any, training: bool) -> Any:
        outputs = tf.cast(self.experts(rows, training=training), tf.float32)
        weights = self.monitor(self.gate(rows), training=training)
        if training:
            self._correlation.update_state(
                expert_correlation(tf.stop_gradient(outputs)), tf.sign(tf.shape(rows)[0])
            )
        mixed = tf.matmul(weights, outputs)  # [T, gates, h]
        one_for_all = len(self._gates()) == 1
        return self.towers(mixed[:, 0] if one_for_all else mixed, training=training)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "num_experts": self.num_experts}


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class OMoE(MixtureOfTasks):
    r"""One-gate mixture of experts: all tasks' towers stand on the same mixture.

    $$ f(x) = \sum_{i=1}^N g(x)_i f_i(x), \qquad g(x) = \text{softmax}(W_g x), \qquad y_k = h_k(f(x)) $$

    (eq. 5 of Ma et al.).

    Args are those of `MixtureOfTasks`.

    Example:
        >>> OMoE(num_tasks=2, hidden_dims=[8], num_experts=3)(tf.ones([3, 5])).shape
        TensorShape([3, 2])
    """

    def _gates(self) -> tuple[str, ...]:
        return ("",)


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class MMoE(MixtureOfTasks):
    r"""Multi-gate mixture of experts: each task mixes the shared experts by a gate of its own.

    $$ f^k(x) = \sum_{i=1}^N g^k(x)_i f_i(x), \qquad g^k(x) = \text{softmax}(W_{gk} x), \qquad
       y_k = h^k(f^k(x)) $$

    (eqs. 6 and 7 of Ma et al.). With one task it is `OMoE`.

    Args are those of `MixtureOfTasks`.

    Example:
        >>> MMoE(num_tasks=2, hidden_dims=[8], num_experts=3)(tf.ones([3, 4, 5])).shape
        TensorShape([3, 4, 2])
    """

    def _gates(self) -> tuple[str, ...]:
        return self.task_names
