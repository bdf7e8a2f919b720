"""Multi-task models that share nothing, a bottom network, or a mixture of experts.

Every model ends in one tower per task, `y_k = h_k(f_k(x))`, and returns one logit per task. The
models differ in f_k. They are those of Ma et al. 2018, "Modeling Task Relationships in Multi-task
Learning with Multi-gate Mixture-of-Experts" (KDD), https://doi.org/10.1145/3219819.3220007. The
remaining baselines of that paper are in `task_sharing`, the mixture gated by category is in
`category_mmoe`.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.layers.base import ConfiguredLayer, seeded_initializer
from tfr_moe.layers.checks import valid_items
from tfr_moe.layers.dispatch import put_rows, take_rows
from tfr_moe.layers.experts import TOWER, ExpertTowers
from tfr_moe.layers.gating import GateMonitor


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class TaskTowers(ExpertTowers):
    """One network per task, each on its own input or all on the same input.

    Args are those of `ExpertTowers`; `num_experts` is the number of tasks.
    """

    def call(  # type: ignore[override]
        self, inputs: tf.Tensor, training: bool = False
    ) -> tf.Tensor:
        """Inputs [T, tasks, n] or [T, n] -> [T, tasks], or [T, tasks, h] if hidden."""
        return self._logits(self.all_experts(inputs, training))


class MultiTaskLayer(ConfiguredLayer, metaclass=abc.ABCMeta):
    """Base class of the multi-task models.

    Args:
        hidden_dims: widths of the layers below the towers: of the bottom, or of each expert.
        tower_hidden_dims: hidden layers of each task's tower; empty for a linear tower.
        task_names: names of the tasks in metrics and routing; by default `task_0`, ...
        kernel_initializer: of all networks; so are `bias_initializer` and the two regularizers.

    Raises:
        ValueError: if `hidden_dims` is empty, the number of `task_names` is not `num_tasks`, or
            inputs have the wrong shape.
    """

    def __init__(
        self,
        num_tasks: int,
        hidden_dims: Sequence[int] = (256,),
        tower_hidden_dims: Sequence[int] = (64,),
        activation: Any = "relu",
        dropout: float = 0.0,
        seed: int | None = None,
        task_names: Sequence[str] | None = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.keep(locals())
        if num_tasks < 1:
            raise ValueError(f"num_tasks must be >= 1. Received: num_tasks={num_tasks}")
        if not self.hidden_dims:
            raise ValueError("hidden_dims must have at least one width. Received: hidden_dims=()")
        if task_names is not None and len(task_names) != num_tasks:
            raise ValueError(
                f"task_names must be {num_tasks} names. Received: task_names={tuple(task_names)}"
            )
        self.task_names = tuple(task_names or (f"task_{k}" for k in range(num_tasks)))

    @abc.abstractmethod
    def call(
        self, inputs: tf.Tensor, mask: tf.Tensor | None = None, training: bool = False
    ) -> tf.Tensor | dict[str, tf.Tensor]:
        """Scores the valid items of inputs [B, n] or, for lists, [B, L, n] for every task.

        Returns float32 logits [B, tasks] or [B, L, tasks], 0 at padded items. Models with gates
        return a dict that holds them as `logits`, see `logits_of`. In training dropout, added
        losses and metrics are active.
        """

    def _experts(self, count: int, name: str) -> ExpertTowers:
        """Networks of `hidden_dims` that all tasks share, without an output layer."""
        return ExpertTowers(
            count,
            **self.arguments(*TOWER, "seed"),
            hidden_output=True,
            name=name,
            dtype=self.dtype_policy,
        )

    def _task_networks(
        self, hidden_dims: Sequence[int], name: str, seed_offset: int = 0, hidden: bool = False
    ) -> TaskTowers:
        """One network per task, with an output layer unless `hidden`."""
        return TaskTowers(
            self.num_tasks,
            hidden_dims,
            **self.arguments(*TOWER[1:]),
            seed=self.offset_seed(seed_offset),
            hidden_output=hidden,
            name=name,
            dtype=self.dtype_policy,
        )

    def _towers(self) -> TaskTowers:
        return self._task_networks(self.tower_hidden_dims, "task_towers", seed_offset=100)


class RowwiseMultiTask(MultiTaskLayer, metaclass=abc.ABCMeta):
    """A multi-task model that scores each item from its vector alone; see `MultiTaskLayer`."""

    @abc.abstractmethod
    def _score(self, rows: tf.Tensor, training: bool) -> tf.Tensor:
        """Rows [T, n] -> logits [T, tasks]."""

    def call(
        self, inputs: tf.Tensor, mask: tf.Tensor | None = None, training: bool = False
    ) -> tf.Tensor:
        """See `MultiTaskLayer.call`."""
        valid_items(inputs, mask, ranks=(2, 3))
        rows, positions = take_rows(inputs, mask)
        return put_rows(tf.cast(self._score(rows, training), tf.float32), positions, inputs)


def logits_of(outputs: tf.Tensor | dict[str, tf.Tensor]) -> tf.Tensor:
    """The logits that a layer returned, alone or in a dict beside the routing of its gates.

    Example:
        >>> logits_of(MMoE(num_tasks=2, hidden_dims=[8])(tf.ones([3, 5]))).shape
        TensorShape([3, 2])
    """
    return outputs["logits"] if isinstance(outputs, dict) else outputs


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class SingleTask(RowwiseMultiTask):
    """A separate network for every task, y_k = h_k(f_k(x)).

    Args are those of `MultiTaskLayer`.

    Example:
        >>> SingleTask(num_tasks=2, hidden_dims=[8])(tf.ones([3, 5])).shape
        TensorShape([3, 2])
    """

    def __init__(
        self,
        num_tasks: int,
        hidden_dims: Sequence[int] = (256,),
        tower_hidden_dims: Sequence[int] = (64,),
        **kwargs: Any,
    ):
        super().__init__(num_tasks, hidden_dims, tower_hidden_dims, **kwargs)
        layers = (*self.hidden_dims, *self.tower_hidden_dims)
        self.networks = self._task_networks(layers, "networks")

    def _score(self, rows: tf.Tensor, training: bool) -> tf.Tensor:
        return self.networks(rows, training=training)


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class SharedBottom(RowwiseMultiTask):
    """One bottom network f for all tasks and a tower for each, y_k = h_k(f(x)).

    Caruana 1997, "Multitask Learning", https://doi.org/10.1023/A:1007379606734; eq. 1 of Ma et al.
    2018.

    Args are those of `MultiTaskLayer`.

    Example:
        >>> SharedBottom(num_tasks=2, hidden_dims=[8])(tf.ones([3, 4, 5])).shape
        TensorShape([3, 4, 2])
    """

    def __init__(
        self,
        num_tasks: int,
        hidden_dims: Sequence[int] = (256,),
        tower_hidden_dims: Sequence[int] = (64,),
        **kwargs: Any,
    ):
        super().__init__(num_tasks, hidden_dims, tower_hidden_dims, **kwargs)
        self.bottom = self._experts(1, "bottom")
        self.towers = self._towers()

    def _score(self, rows: tf.Tensor, training: bool) -> tf.Tensor:
        shared = tf.squeeze(self.bottom(rows, training=training), axis=1)
        return self.towers(shared, training=training)


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class MMoE(MultiTaskLayer):
    r"""Multi-gate mixture of experts: each task mixes the shared experts by its own softmax gate.

    $$ f^k(x) = \sum_{i=1}^N g^k(x)_i f_i(x), \qquad g^k(x) = \text{softmax}(W_{gk} x), \qquad
       y_k = h^k(f^k(x)) $$

    (eqs. 6 and 7 of Ma et al. 2018). With one task it equals `OMoE`. Gates and mixing run in
    float32 under every precision policy. Training records the metrics of `GateMonitor`.

    Args:
        num_experts: N.
        gate_initializer: of the gates' kernel, as is `gate_regularizer`.
        **kwargs: see `MultiTaskLayer`; `hidden_dims` are those of each expert.

    Example:
        >>> outputs = MMoE(num_tasks=2, hidden_dims=[8], num_experts=3)(tf.ones([3, 4, 5]))
        >>> {name: tuple(value.shape) for name, value in outputs.items() if "task_1" not in name}
        {'logits': (3, 4, 2), 'expert_ids_task_0': (3, 4, 3), 'expert_weights_task_0': (3, 4, 3)}
    """

    def __init__(
        self,
        num_tasks: int,
        hidden_dims: Sequence[int] = (256,),
        tower_hidden_dims: Sequence[int] = (64,),
        *,
        num_experts: int = 8,
        gate_initializer: Any = "glorot_uniform",
        gate_regularizer: Any = None,
        **kwargs: Any,
    ):
        super().__init__(num_tasks, hidden_dims, tower_hidden_dims, **kwargs)
        self.keep(locals())
        self.experts = self._experts(num_experts, "experts")
        self.towers = self._towers()
        self.monitor = GateMonitor(
            num_experts, gates=self.gate_names, name="gates", dtype="float32"
        )

    @property
    def gate_names(self) -> tuple[str, ...]:
        """Names of the gates: the tasks."""
        return self.task_names

    def build(self, input_shape: Any) -> None:
        """Creates the kernel [gates, n, N], whose fans are those of one gate; there is no bias."""
        gates, width = len(self.gate_names), int(input_shape[-1])
        start = seeded_initializer(self.gate_initializer, self.offset_seed(200), gates)
        self.gate_kernel = self.add_weight(
            "gate_kernel",
            [gates, width, self.num_experts],
            initializer=start,
            regularizer=self.gate_regularizer,
        )
        super().build(input_shape)

    def gate(self, rows: tf.Tensor) -> tf.Tensor:
        """Rows [T, n] -> gate weights, float32 [T, gates, N], which sum to 1 over the experts."""
        kernel = tf.cast(self.gate_kernel, tf.float32)
        return tf.nn.softmax(tf.einsum("tn,gne->tge", tf.cast(rows, tf.float32), kernel))

    def call(
        self, inputs: tf.Tensor, mask: tf.Tensor | None = None, training: bool = False
    ) -> dict[str, tf.Tensor]:
        """Scores the valid items for every task, see `MultiTaskLayer`.

        Returns `logits`, and for each gate `expert_ids` int32 and `expert_weights` float32 of all
        experts, [B, N] or [B, L, N], heaviest first, with `_<task>` after the name where each task
        has a gate. Weights are 0 at padded items.
        """
        valid_items(inputs, mask, ranks=(2, 3))
        rows, positions = take_rows(inputs, mask)
        gate = self.gate(rows)
        logits = tf.cast(self._mix(rows, gate, training), tf.float32)
        outputs = {"logits": put_rows(logits, positions, inputs)}
        weights, ids = tf.math.top_k(put_rows(gate, positions, inputs), k=self.num_experts)
        by_gate = (self.gate_names, tf.unstack(ids, axis=-2), tf.unstack(weights, axis=-2))
        for name, ids_of_gate, weights_of_gate in zip(*by_gate, strict=True):
            suffix = f"_{name}" if name else ""
            outputs[f"expert_ids{suffix}"] = ids_of_gate
            outputs[f"expert_weights{suffix}"] = weights_of_gate
        return outputs

    def _mix(self, rows: tf.Tensor, gate: tf.Tensor, training: bool) -> tf.Tensor:
        outputs = tf.cast(self.experts(rows, training=training), tf.float32)
        weights = self.monitor(gate, training=training)
        mixed = tf.matmul(weights, outputs)  # [T, gates, h]
        one_for_all = len(self.gate_names) == 1
        return self.towers(tf.squeeze(mixed, axis=1) if one_for_all else mixed, training=training)


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class OMoE(MMoE):
    r"""One-gate mixture of experts: the towers of all tasks read the same mixture.

    $$ f(x) = \sum_{i=1}^N g(x)_i f_i(x), \qquad g(x) = \text{softmax}(W_g x), \qquad
       y_k = h_k(f(x)) $$

    (eq. 5 of Ma et al. 2018). Args are those of `MMoE`.

    Example:
        >>> OMoE(num_tasks=2, hidden_dims=[8], num_experts=3)(tf.ones([3, 5]))["logits"].shape
        TensorShape([3, 2])
    """

    @property
    def gate_names(self) -> tuple[str, ...]:
        """The empty name of the only gate."""
        return ("",)
