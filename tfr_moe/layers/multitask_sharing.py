"""Multi-task models whose tasks have networks of their own, tied by a penalty, stitches or factors.

The baselines of Ma et al. 2018 (KDD), section 5.1, beside those in `multitask`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.layers.multitask import ItemwiseMultiTask, SingleTask
from tfr_moe.reduction import mean_over_items


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class L2Constrained(SingleTask):
    r"""Networks of their own that are drawn to each other by a penalty.

    $$ L = \sum_k L_k(y_k, f(x; \theta_k)) + \alpha \sum_{k < l} \| \theta_k - \theta_l \|_2^2 $$

    (Duong et al. 2015, as Ma et al. take it for two tasks), theta_k being all weights and biases of task
    k. In training the layer adds the second term to the losses; a batch without a valid item adds 0. With
    alpha = 0 it is `SingleTask`.

    Args:
        l2_weight: alpha, >= 0.
        **kwargs: see `MultiTaskLayer`.

    Example:
        >>> layer = L2Constrained(num_tasks=2, hidden_dims=[8], l2_weight=0.1)
        >>> layer(tf.ones([3, 5]), training=True).shape, len(layer.losses)
        (TensorShape([3, 2]), 1)
    """

    def __init__(self, *args: Any, l2_weight: float = 1e-3, **kwargs: Any):
        super().__init__(*args, **kwargs)
        if l2_weight < 0:
            raise ValueError(f"l2_weight must be >= 0. Received: l2_weight={l2_weight}")
        self.l2_weight = l2_weight

    def distance(self) -> Any:
        """The sum over the pairs of tasks of their parameters' squared distance."""
        total = tf.constant(0.0)
        for stacked in (*self.networks.kernels, *self.networks.biases):
            tasks = tf.cast(stacked, tf.float32)
            # Over all pairs this is the number of tasks times the scatter around the mean.
            gaps = tf.square(tasks - tf.reduce_mean(tasks, axis=0))
            total += self.num_tasks * tf.reduce_sum(gaps)
        return total

    def _score(self, rows: Any, training: bool) -> Any:
        logits = super()._score(rows, training)
        if training and self.l2_weight > 0:
            items = tf.ones([tf.shape(rows)[0]])
            self.add_loss(self.l2_weight * mean_over_items(items * self.distance(), items))
        return logits

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "l2_weight": self.l2_weight}


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class CrossStitch(ItemwiseMultiTask):
    r"""Networks of their own whose hidden layers are mixed between the tasks.

    After hidden layer l of the bottoms a cross-stitch unit mixes the tasks' activations,

    $$ \tilde{x}^{(l)}_k = \sum_j A^{(l)}_{kj} x^{(l)}_j $$

    (Misra et al. 2016, eq. 1), A^(l) being a learned matrix [tasks, tasks]. It starts with `own_share` on
    the diagonal and the rest spread evenly, so that its rows add up to 1. The towers are not stitched.

    Args:
        own_share: a task's share of its own activations at the start, from 0 to 1.
        **kwargs: see `MultiTaskLayer`; `hidden_dims` are those of each task's bottom.

    Example:
        >>> CrossStitch(num_tasks=2, hidden_dims=[8, 4])(tf.ones([3, 5])).shape
        TensorShape([3, 2])
    """

    def __init__(self, *args: Any, own_share: float = 0.9, **kwargs: Any):
        super().__init__(*args, **kwargs)
        if not 0 <= own_share <= 1:
            raise ValueError(f"own_share must be from 0 to 1. Received: own_share={own_share}")
        self.own_share = own_share
        self.bottoms = [
            self._tasks([width], f"bottom_{depth}", offset=depth, hidden=True)
            for depth, width in enumerate(self.hidden_dims)
        ]
        self.towers = self._towers()

    def build(self, input_shape: Any) -> None:
        """Creates a matrix per hidden layer."""
        others = (1 - self.own_share) / max(1, self.num_tasks - 1)
        start = [
            [(self.own_share if j == k else others) for j in range(self.num_tasks)]
            for k in range(self.num_tasks)
        ]
        start = [[1.0]] if self.num_tasks == 1 else start
        self.stitches = [
            self.add_weight(
                f"stitch_{depth}",
                [self.num_tasks, self.num_tasks],
                initializer=tf.keras.initializers.Constant(start),
            )
            for depth in range(len(self.hidden_dims))
        ]
        super().build(input_shape)

    def _score(self, rows: Any, training: bool) -> Any:
        hidden = rows
        for bottom, stitch in zip(self.bottoms, self.stitches, strict=True):
            hidden = bottom(hidden, training=training)  # [T, tasks, h]
            hidden = tf.einsum("kj,tjh->tkh", tf.cast(stitch, hidden.dtype), hidden)
        return self.towers(hidden, training=training)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "own_share": self.own_share}


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class TensorFactorization(ItemwiseMultiTask):
    r"""Bottoms whose weights are slices of a tensor of low rank (Tucker decomposition).

    The weights of one layer of all tasks, W in R^{m x n x tasks}, are

    $$ W_{a b k} = \sum_{r_1, r_2, r_3} S_{r_1 r_2 r_3} \, U^1_{a r_1} \, U^2_{b r_2} \, U^3_{k r_3} $$

    (Tucker; Yang and Hospedales 2017, as Ma et al. describe it), with learned S, U1, U2 and U3. Biases are
    each task's own, and so are the towers.

    Args:
        tensor_ranks: r1, r2 and r3, each cut to the side that it belongs to.
        **kwargs: see `MultiTaskLayer`; `hidden_dims` are those of each task's bottom.

    Example:
        >>> TensorFactorization(num_tasks=2, hidden_dims=[8], tensor_ranks=[3, 3, 2])(
        ...     tf.ones([3, 5])
        ... ).shape
        TensorShape([3, 2])
    """

    def __init__(self, *args: Any, tensor_ranks: Sequence[int] = (16, 16, 2), **kwargs: Any):
        super().__init__(*args, **kwargs)
        if len(tensor_ranks) != 3 or min(tensor_ranks) < 1:
            raise ValueError(
                f"tensor_ranks must be three numbers >= 1. Received: tensor_ranks={tensor_ranks}"
            )
        self.tensor_ranks = tuple(tensor_ranks)
        self._activation = tf.keras.activations.get(self.activation)
        self.towers = self._towers()

    def build(self, input_shape: Any) -> None:
        """Creates core, factors and biases of each layer; the slices start with glorot's variance."""
        self.factors = [
            self._layer(depth, *sizes)
            for depth, sizes in enumerate(
                itertools.pairwise([int(input_shape[-1]), *self.hidden_dims])
            )
        ]
        super().build(input_shape)

    def _layer(self, depth: int, fan_in: int, fan_out: int) -> dict[str, Any]:
        sides = (fan_in, fan_out, self.num_tasks)
        ranks = tuple(min(pair) for pair in zip(self.tensor_ranks, sides, strict=True))

        def normal(name: str, shape: Sequence[int], variance: float, offset: int) -> Any:
            # A sum over r terms of a factor with variance 1 / r leaves the core's variance.
            seed = self._offset(10 * depth + offset)
            initializer = tf.keras.initializers.RandomNormal(stddev=variance**0.5, seed=seed)
            return self.add_weight(f"{name}_{depth}", shape, initializer=initializer)

        layer = {"core": normal("core", ranks, 2.0 / (fan_in + fan_out), 0)}
        for i, (side, rank) in enumerate(zip(sides, ranks, strict=True), start=1):
            layer[f"factor{i}"] = normal(f"factor{i}", [side, rank], 1.0 / rank, i)
        layer["bias"] = self.add_weight(
            f"bias_{depth}", [self.num_tasks, fan_out], initializer="zeros"
        )
        return layer

    def kernel(self, depth: int) -> Any:
        """The weights of one layer put together, float32 [tasks, m, n]."""
        layer = {name: tf.cast(value, tf.float32) for name, value in self.factors[depth].items()}
        mixed = tf.einsum("pqr,kr->kpq", layer["core"], layer["factor3"])
        return tf.einsum("kpq,mp,nq->kmn", mixed, layer["factor1"], layer["factor2"])

    def _score(self, rows: Any, training: bool) -> Any:
        hidden = rows[tf.newaxis]
        for depth, layer in enumerate(self.factors):
            kernel = tf.cast(self.kernel(depth), rows.dtype)
            bias = tf.cast(layer["bias"], rows.dtype)[:, tf.newaxis]
            hidden = self._activation(tf.matmul(hidden, kernel) + bias)
            if training and self.dropout > 0:
                hidden = tf.nn.dropout(hidden, self.dropout, seed=self._offset(depth))
        return self.towers(tf.transpose(hidden, [1, 0, 2]), training=training)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "tensor_ranks": list(self.tensor_ranks)}
