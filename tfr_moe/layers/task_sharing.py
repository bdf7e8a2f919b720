"""Multi-task models with one network per task, tied by a penalty, stitches or factors.

They are baselines of Ma et al. 2018 (KDD, section 5.1), https://doi.org/10.1145/3219819.3220007.
`MULTITASK` names them and the models of `multi_task`.
"""

from __future__ import annotations

import bisect
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.layers.distribute import mean_over_items
from tfr_moe.layers.multi_task import (
    MMoE,
    MultiTaskLayer,
    OMoE,
    RowwiseMultiTask,
    SharedBottom,
    SingleTask,
)


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class L2Constrained(SingleTask):
    r"""A separate network per task, with a penalty on the distance of their parameters.

    $$ L = \sum_k L_k(y_k, f(x; \theta_k)) + \alpha \sum_{k < l} \| \theta_k - \theta_l \|_2^2 $$

    theta_k being all weights and biases of task k (Duong et al. 2015,
    https://aclanthology.org/P15-2139, in the form of Ma et al. 2018). Training adds the second term
    to the losses; a batch without a valid item adds 0. With alpha = 0 the layer equals
    `SingleTask`. Args are those of `MultiTaskLayer`, and `l2_weight`, alpha >= 0.

    Example:
        >>> layer = L2Constrained(num_tasks=2, hidden_dims=[8], l2_weight=0.1)
        >>> layer(tf.ones([3, 5]), training=True).shape, len(layer.losses)
        (TensorShape([3, 2]), 1)
    """

    def __init__(
        self,
        num_tasks: int,
        hidden_dims: Sequence[int] = (256,),
        tower_hidden_dims: Sequence[int] = (64,),
        *,
        l2_weight: float = 1e-3,
        **kwargs: Any,
    ):
        super().__init__(num_tasks, hidden_dims, tower_hidden_dims, **kwargs)
        self.keep(locals())

    def distance(self) -> tf.Tensor:
        """The squared distance of the parameters, summed over the pairs of tasks."""
        total = tf.constant(0.0)
        for stacked in (*self.networks.kernels, *self.networks.biases):
            tasks = tf.cast(stacked, tf.float32)
            # The sum over all pairs is the number of tasks times the scatter around the mean.
            deviations = tf.square(tasks - tf.reduce_mean(tasks, axis=0))
            total += self.num_tasks * tf.reduce_sum(deviations)
        return total

    def _score(self, rows: tf.Tensor, training: bool) -> tf.Tensor:
        logits = super()._score(rows, training)
        if training and self.l2_weight > 0:
            items = tf.ones([tf.shape(rows)[0]])
            self.add_loss(self.l2_weight * mean_over_items(items * self.distance(), items))
        return logits


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class CrossStitch(RowwiseMultiTask):
    r"""One bottom per task, whose hidden layers are mixed between the tasks.

    After hidden layer l of the bottoms a cross-stitch unit mixes the activations of the tasks,

    $$ \tilde{x}^{(l)}_k = \sum_j A^{(l)}_{kj} x^{(l)}_j $$

    with a learned matrix A^(l) [tasks, tasks] (Misra et al. 2016, eq. 1,
    https://arxiv.org/abs/1604.03539). Its diagonal starts at `stitch_self_weight` and the rest of
    each row is even, so that rows add up to 1. The towers are not stitched.

    Args are those of `MultiTaskLayer`, and `stitch_self_weight`, the initial weight of a task's own
    activations, from 0 to 1; `hidden_dims` are those of each task's bottom.

    Example:
        >>> CrossStitch(num_tasks=2, hidden_dims=[8, 4])(tf.ones([3, 5])).shape
        TensorShape([3, 2])
    """

    def __init__(
        self,
        num_tasks: int,
        hidden_dims: Sequence[int] = (256,),
        tower_hidden_dims: Sequence[int] = (64,),
        *,
        stitch_self_weight: float = 0.9,
        **kwargs: Any,
    ):
        super().__init__(num_tasks, hidden_dims, tower_hidden_dims, **kwargs)
        self.keep(locals())
        self.bottoms = [
            self._task_networks([width], f"bottom_{depth}", seed_offset=depth, hidden=True)
            for depth, width in enumerate(self.hidden_dims)
        ]
        self.towers = self._towers()

    def build(self, input_shape: Any) -> None:
        """Creates one matrix per hidden layer."""
        weight, tasks = self.stitch_self_weight, self.num_tasks
        others = np.full([tasks, tasks], (1 - weight) / max(1, tasks - 1))
        matrix = np.where(np.eye(tasks, dtype=bool), 1.0 if tasks == 1 else weight, others)
        self.stitches = [
            self.add_weight(
                f"stitch_{depth}",
                [tasks, tasks],
                initializer=tf.keras.initializers.Constant(matrix),
            )
            for depth in range(len(self.hidden_dims))
        ]
        super().build(input_shape)

    def _score(self, rows: tf.Tensor, training: bool) -> tf.Tensor:
        hidden = rows
        for bottom, stitch in zip(self.bottoms, self.stitches, strict=True):
            hidden = bottom(hidden, training=training)  # [T, tasks, h]
            hidden = tf.einsum("kj,tjh->tkh", tf.cast(stitch, hidden.dtype), hidden)
        return self.towers(hidden, training=training)


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class TensorFactorization(RowwiseMultiTask):
    r"""Bottoms whose weights are slices of a low-rank tensor (Tucker decomposition).

    The weights of one layer of all tasks, W in R^{m x n x tasks}, are

    $$ W_{abk} = \sum_{r_1, r_2, r_3} S_{r_1 r_2 r_3} U^1_{a r_1} U^2_{b r_2} U^3_{k r_3} $$

    with learned S, U1, U2 and U3 (Yang and Hospedales 2017, https://arxiv.org/abs/1605.06391, in
    the form of Ma et al. 2018). Each task has its own biases and its own tower.

    Args are those of `MultiTaskLayer`, and `tensor_ranks`, r1, r2 and r3, each cut to the length of
    its side; `hidden_dims` are those of each task's bottom.

    Example:
        >>> layer = TensorFactorization(num_tasks=2, hidden_dims=[8], tensor_ranks=[3, 3, 2])
        >>> layer(tf.ones([3, 5])).shape
        TensorShape([3, 2])
    """

    def __init__(
        self,
        num_tasks: int,
        hidden_dims: Sequence[int] = (256,),
        tower_hidden_dims: Sequence[int] = (64,),
        *,
        tensor_ranks: Sequence[int] = (16, 16, 2),
        **kwargs: Any,
    ):
        super().__init__(num_tasks, hidden_dims, tower_hidden_dims, **kwargs)
        self.keep(locals())
        self.towers = self._towers()

    def build(self, input_shape: Any) -> None:
        """Creates core, factors and biases; the slices start with the variance of glorot.

        `kernel_initializer` and `kernel_regularizer` are those of the towers.
        """
        widths = [int(input_shape[-1]), *self.hidden_dims]
        self.factors = [
            self._layer(depth, *sizes) for depth, sizes in enumerate(itertools.pairwise(widths))
        ]
        super().build(input_shape)

    def _layer(self, depth: int, fan_in: int, fan_out: int) -> dict[str, tf.Variable]:
        sides = (fan_in, fan_out, self.num_tasks)
        ranks = tuple(min(pair) for pair in zip(self.tensor_ranks, sides, strict=True))

        def normal(name: str, shape: Sequence[int], variance: float, offset: int) -> tf.Variable:
            # A sum over r terms of a factor with variance 1 / r keeps the variance of the core.
            seed = self.offset_seed(10 * depth + offset)
            initializer = tf.keras.initializers.RandomNormal(stddev=variance**0.5, seed=seed)
            return self.add_weight(f"{name}_{depth}", shape, initializer=initializer)

        layer = {"core": normal("core", ranks, 2.0 / (fan_in + fan_out), 0)}
        for i, (side, rank) in enumerate(zip(sides, ranks, strict=True), start=1):
            layer[f"factor{i}"] = normal(f"factor{i}", [side, rank], 1.0 / rank, i)
        layer["bias"] = self.add_weight(
            f"bias_{depth}",
            [self.num_tasks, fan_out],
            initializer=self.bias_initializer,
            regularizer=self.bias_regularizer,
        )
        return layer

    def kernel(self, depth: int) -> tf.Tensor:
        """The assembled weights of one layer, float32 [tasks, m, n]."""
        layer = {name: tf.cast(value, tf.float32) for name, value in self.factors[depth].items()}
        mixed = tf.einsum("pqr,kr->kpq", layer["core"], layer["factor3"])
        return tf.einsum("kpq,mp,nq->kmn", mixed, layer["factor1"], layer["factor2"])

    def _score(self, rows: tf.Tensor, training: bool) -> tf.Tensor:
        hidden = tf.expand_dims(rows, axis=0)
        for depth, layer in enumerate(self.factors):
            kernel = tf.cast(self.kernel(depth), rows.dtype)
            bias = tf.expand_dims(tf.cast(layer["bias"], rows.dtype), axis=1)
            hidden = self.activation(tf.matmul(hidden, kernel) + bias)
            if training and self.dropout > 0:
                hidden = tf.nn.dropout(hidden, self.dropout, seed=self.offset_seed(depth))
        return self.towers(tf.transpose(hidden, [1, 0, 2]), training=training)


MULTITASK: dict[str, type[MultiTaskLayer]] = {
    "single_task": SingleTask,
    "shared_bottom": SharedBottom,
    "l2_constrained": L2Constrained,
    "cross_stitch": CrossStitch,
    "tensor_factorization": TensorFactorization,
    "omoe": OMoE,
    "mmoe": MMoE,
}
"""Model name -> layer, in the order of the paper's tables."""


def dims_of_budget(
    hidden_dims: Sequence[int], budget: int, parameters: Callable[[tuple[int, ...]], int]
) -> tuple[int, ...]:
    """Scales all widths by one factor to reach about `budget` parameters.

    `parameters` counts them for some widths, and must not fall as widths grow.

    Example:
        >>> dims_of_budget([4, 2], 300, lambda dims: 10 * dims[0] + dims[0] * dims[1])
        (17, 8)
    """

    # Steps of the factor are 2 ** -20.
    def scaled(step: int) -> tuple[int, ...]:
        return tuple(max(1, round(width * step / 2**20)) for width in hidden_dims)

    if not hidden_dims:
        return ()
    # Counting may build the network, and most steps of the search round to widths seen before.
    parameters = functools.cache(parameters)
    end = 2**20
    while parameters(scaled(end)) < budget:
        end *= 2
    step = bisect.bisect_left(range(end), budget, key=lambda n: parameters(scaled(n)))
    nearest = scaled(step - 1), scaled(step)
    return min(nearest, key=lambda dims: abs(parameters(dims) - budget))
