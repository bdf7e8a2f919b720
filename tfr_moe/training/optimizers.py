"""The optimizers of a run, among them an AdamW that is fast on CPUs and large embedding tables."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tfr_moe._compat import tf
from tfr_moe.config import RunConfig

_LAZY_SIZE = 1 << 20
"""Number of elements from which only the rows of a batch are updated: 65,536 rows of 16."""
_LARGE = 1 << 24
"""Number of elements of a layer of all experts, 64 MB, from which updates save memory."""


class _StepConstants(NamedTuple):
    """What a step of AdamW needs besides a variable and its gradient.

    Attributes:
        decay: share by which weights decay.
        remainder: 1 - decay.
        decayed_rate: rate of an update that the decay comes after.
        constants: beta_1, beta_2 and epsilon.
        last: what the next update on a device waits for.
    """

    rate: tf.Tensor
    decay: tf.Tensor
    remainder: tf.Tensor
    decayed_rate: tf.Tensor
    beta_1_power: tf.Tensor
    beta_2_power: tf.Tensor
    constants: Mapping[str, tf.Tensor]
    last: list[Any]


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class FusedAdamW(tf.keras.optimizers.AdamW):
    r"""AdamW (Loshchilov and Hutter, 2019) with fused updates, lazy for large embedding tables.

    With the gradient g, step t, learning rate \eta and weight decay \lambda, for each weight

    $$ m \leftarrow \beta_1 m + (1 - \beta_1) g, \quad v \leftarrow \beta_2 v + (1 - \beta_2) g^2 $$
    $$ w \leftarrow w - \eta \lambda w
       - \eta \frac{\sqrt{1 - \beta_2^t}}{1 - \beta_1^t} \frac{m}{\sqrt{v} + \epsilon} $$

    Dense gradients, and those of small embedding tables, give the result of Keras' AdamW to about
    1e-5 of a step. A large table gets lazy Adam, an approximation: only the rows in the batch
    change, so that the cost grows with the batch and not with the vocabulary. A rare row then moves
    less than under Keras, whose first moment goes on moving it between two uses: with equal
    gradients, a row in one of 10 batches moves 0.26 of its way under Keras in the first 40 steps
    and 0.74 in 3,000, a row in one of 300 batches 0.30 in 3,000. Use `keras_adamw`, or a larger
    `lazy_size`, where that matters more than speed.

    Updates of a model with a layer of 2^24 weights in its experts are made one after the other and
    in place, the largest weights first: a step of N = 64 of the paper's towers needs a quarter less
    memory, and 2 % more time.

    Clipping, schedules, EMA, `exclude_from_weight_decay` and checkpoints are those of the base
    class, so that either optimizer reads checkpoints of the other. See [Decoupled Weight Decay
    Regularization](https://arxiv.org/abs/1711.05101).

    Args:
        learning_rate: \eta, a number or a schedule.
        weight_decay: \lambda.
        lazy_size: embedding tables with at least this number of elements are updated by row.
        name: name of the optimizer.
        **kwargs: see `tf.keras.optimizers.AdamW`; `amsgrad` raises a ValueError.

    Example:
        >>> weight = tf.Variable([1.0])
        >>> optimizer = FusedAdamW(learning_rate=0.1, weight_decay=0.5)
        >>> _ = optimizer.apply_gradients([(tf.constant([4.0]), weight)])
        >>> round(float(weight[0]), 4)  # 1 - 0.1 x 0.5 x 1 - 0.1 x 4 / 4
        0.85
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        weight_decay: float = 0.004,
        lazy_size: int = _LAZY_SIZE,
        name: str = "AdamW",
        **kwargs: Any,
    ):
        if kwargs.pop("amsgrad", False):
            raise ValueError("FusedAdamW does not support amsgrad; use tf.keras.optimizers.AdamW")
        # Keras would compile the sparse updates as well.
        kwargs["jit_compile"] = False
        super().__init__(
            learning_rate=learning_rate, weight_decay=weight_decay, name=name, **kwargs
        )
        self.lazy_size = lazy_size
        self._saves_memory = False
        self._first: list[Any] = []
        self._step_of: Callable[[tf.DType, str], _StepConstants] = self._make_step

    def _apply_weight_decay(self, variables: Any) -> None:
        """Does nothing: `update_step` applies the decay."""

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """See the base class; what depends on the step alone is computed once for a device."""
        pairs = list(grads_and_vars)
        stacks = [variable.shape for _, variable in pairs if variable.shape.rank == 3]
        self._saves_memory = any(shape.num_elements() >= _LARGE for shape in stacks)
        if self._saves_memory:
            # Before they are sorted: checkpoints have the moments in the order of the variables.
            with tf.name_scope(self.name), tf.init_scope():
                self.build([variable for _, variable in pairs])
            pairs, self._first = _in_little_memory(pairs)
        self._step_of = functools.cache(self._make_step)
        try:
            return super().apply_gradients(pairs, *args, **kwargs)
        finally:
            self._step_of, self._first = self._make_step, []

    def _make_step(self, dtype: tf.DType, device: str) -> _StepConstants:
        step = tf.cast(self.iterations + 1, dtype)
        rate = tf.cast(self.learning_rate, dtype)
        decay = rate * (self.weight_decay or 0.0)
        remainder = 1 - decay
        beta_1, beta_2 = tf.constant(self.beta_1, dtype), tf.constant(self.beta_2, dtype)
        epsilon = tf.constant(self.epsilon, dtype)
        return _StepConstants(
            rate,
            decay,
            remainder,
            rate / remainder,
            beta_1**step,
            beta_2**step,
            {"beta1": beta_1, "beta2": beta_2, "epsilon": epsilon},
            list(self._first),
        )

    def update_step(self, gradient: tf.Tensor | tf.IndexedSlices, variable: tf.Variable) -> None:
        """Updates `variable` by its gradient, a tensor or `tf.IndexedSlices` without duplicates."""
        now = self._step_of(variable.dtype.base_dtype, variable.device)
        if not self._saves_memory:
            self._update(variable, gradient, now)
            return
        # One update after the other: side by side, the stacks of gradients, and copies of weights
        # that are still read, double the memory.
        with tf.control_dependencies(now.last):
            now.last[:] = [self._update(variable, _stacked_again(gradient), now)]

    def _update(
        self, variable: tf.Variable, gradient: tf.Tensor | tf.IndexedSlices, now: _StepConstants
    ) -> Any:
        decays = bool(self.weight_decay) and self._use_weight_decay(variable)
        if isinstance(gradient, tf.IndexedSlices):
            if (variable.shape.num_elements() or 0) >= self.lazy_size:
                return self._sparse_step(variable, gradient, now, decays)
            rows = variable.shape[0]
            gradient = tf.math.unsorted_segment_sum(gradient.values, gradient.indices, rows)
        m, v = self._moments_of(variable)
        update = tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=m.handle,
            v=v.handle,
            beta1_power=now.beta_1_power,
            beta2_power=now.beta_2_power,
            lr=now.decayed_rate if decays else now.rate,
            grad=gradient,
            **now.constants,
        )
        if not decays:
            return update
        # After the update, so that the product takes the memory of the gradient.
        if self._saves_memory:
            return variable.assign_sub(variable * now.decay, read_value=False)
        return variable.assign(variable * now.remainder, read_value=False)

    def _moments_of(self, variable: tf.Variable) -> tuple[tf.Variable, tf.Variable]:
        index = self._index_dict[self._var_key(variable)]
        return self._momentums[index], self._velocities[index]

    def _sparse_step(
        self, variable: tf.Variable, gradient: tf.IndexedSlices, now: _StepConstants, decays: bool
    ) -> Any:
        rows, (m, v) = gradient.indices, self._moments_of(variable)
        old = tf.gather(variable, rows)
        momentum, velocity = tf.gather(m, rows), tf.gather(v, rows)
        momentum += (gradient.values - momentum) * (1 - self.beta_1)
        velocity += (tf.square(gradient.values) - velocity) * (1 - self.beta_2)
        scale = now.rate * tf.sqrt(1 - now.beta_2_power) / (1 - now.beta_1_power)
        change = scale * momentum / (tf.sqrt(velocity) + self.epsilon)
        if decays:
            change += now.decay * old
        m.scatter_update(tf.IndexedSlices(momentum, rows))
        v.scatter_update(tf.IndexedSlices(velocity, rows))
        return variable.scatter_sub(tf.IndexedSlices(change, rows))

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        config = super().get_config()
        for name in ("amsgrad", "jit_compile"):
            config.pop(name, None)
        return {**config, "lazy_size": self.lazy_size}


def _in_little_memory(pairs: list[Any]) -> tuple[list[Any], list[Any]]:
    """Gradients and variables by size, and what the first update waits for: all gradients.

    The largest stack is filled while its parts are computed, and updated first. The others are
    made in its memory, one after the other.
    """
    pairs = sorted(pairs, key=lambda pair: -(pair[1].shape.num_elements() or 0))
    parts = [part for gradient, _ in pairs for part in _parts_of(gradient) or [gradient]]
    gradient, variable = pairs[0]
    if (slices := _parts_of(gradient)) and all(part.shape.is_fully_defined() for part in slices):
        pairs[0] = tf.parallel_stack(slices), variable
    return pairs, [part for part in parts if tf.is_symbolic_tensor(part)]


def _parts_of(gradient: tf.Tensor | tf.IndexedSlices) -> list[tf.Tensor]:
    """The tensors that a gradient is a stack of, as `tf.unstack` along the first axis has it."""
    if not tf.is_symbolic_tensor(gradient) or gradient.op.type != "Pack":
        return []
    return list(gradient.op.inputs) if gradient.op.get_attr("axis") == 0 else []


def _stacked_again(gradient: tf.Tensor | tf.IndexedSlices) -> tf.Tensor | tf.IndexedSlices:
    """The same gradient; a stack of parts is made here, not before."""
    parts = _parts_of(gradient)
    return tf.stack(parts) if parts else gradient


def make_optimizer(config: RunConfig) -> tf.keras.optimizers.Optimizer:
    """Makes the Keras optimizer of a run; AdamW decays all weights but biases."""
    settings = config.optimization
    common: dict[str, Any] = {
        "learning_rate": settings.learning_rate,
        "global_clipnorm": settings.clip_norm,
    }
    keras = tf.keras.optimizers
    others = {"adam": keras.Adam, "adagrad": keras.Adagrad, "sgd": keras.SGD}
    if settings.optimizer in others:
        return others[settings.optimizer](**common)
    adamw = FusedAdamW if settings.optimizer == "adamw" else keras.AdamW
    optimizer = adamw(weight_decay=settings.weight_decay, **common)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    return optimizer


def learning_rate_drop(config: RunConfig) -> list[tf.keras.callbacks.Callback]:
    """Divides the rate by ten after `learning_rate_drop_epoch`, also in a resumed run."""
    last = config.optimization.learning_rate_drop_epoch
    if last is None:
        return []

    def rate(epoch: int, _: float) -> float:
        return config.optimization.learning_rate * (0.1 if epoch >= last else 1.0)

    return [tf.keras.callbacks.LearningRateScheduler(rate)]
