"""AdamW whose step is one pass over dense weights, and over the rows in use of large embedding tables."""

from __future__ import annotations

from typing import Any

from tfr_moe._compat import tf

_COMPILED_SIZE = 1 << 16
"""Elements from which compiling a variable's decay pays."""
_LAZY_SIZE = 1 << 20
"""Elements from which a table's rows are updated alone: 65,536 rows of 16."""


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class FusedAdamW(tf.keras.optimizers.AdamW):
    r"""AdamW (Loshchilov and Hutter, 2019) as Keras has it, faster, and lazy about embedding tables.

    With the gradient g, step t, learning rate \eta and weight decay \lambda, for each weight

    $$ m \leftarrow \beta_1 m + (1 - \beta_1) g, \qquad v \leftarrow \beta_2 v + (1 - \beta_2) g^2 $$
    $$ w \leftarrow w - \eta \lambda w
       - \eta \frac{\sqrt{1 - \beta_2^t}}{1 - \beta_1^t} \frac{m}{\sqrt{v} + \epsilon} $$

    Dense gradients give what `tf.keras.optimizers.AdamW` gives, to some 1e-5 of a step (the kernel takes
    1 - \beta_2 in float32, Keras in float64). Keras goes over the memory of each weight a dozen times; this
    lets the weight decay in place, by a multiplication that XLA compiles, and calls TensorFlow's kernel of
    Adam, which is one pass.

    Sparse gradients, those of embedding tables, are made dense where the table is small: that too is what
    Keras gives. Of a large table only the rows change that the batch used: their weights, their moments,
    their decay. Keras lets all moments fade and all rows decay and move on in each step, at a cost that
    grows with the vocabulary; here it grows with the batch. The price is that rare rows learn more
    slowly: under Keras their second moment fades between two uses, and their steps are the longer.

    Clipping, schedules, EMA, `exclude_from_weight_decay` and checkpoints are those of the base class: its
    slots have the same names and shapes, so that a checkpoint of either can be read by the other.

    Args:
        learning_rate: \eta, a number or a schedule.
        weight_decay: \lambda.
        compiled_size: variables of at least so many elements decay by compiled code, where the device is
            one that can; smaller ones cost less than the call.
        lazy_size: embedding tables of at least so many elements are updated by row.
        **kwargs: see `tf.keras.optimizers.AdamW`; `amsgrad` is not there.

    Raises:
        ValueError: for `amsgrad`.

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
        compiled_size: int = _COMPILED_SIZE,
        lazy_size: int = _LAZY_SIZE,
        name: str = "AdamW",
        **kwargs: Any,
    ):
        if kwargs.pop("amsgrad", False):
            raise ValueError("FusedAdamW has no amsgrad; take tf.keras.optimizers.AdamW")
        # Keras' own compilation would take in the sparse updates as well.
        kwargs["jit_compile"] = False
        super().__init__(
            learning_rate=learning_rate, weight_decay=weight_decay, name=name, **kwargs
        )
        self.compiled_size = compiled_size
        self.lazy_size = lazy_size
        self._shrink_compiled = tf.function(self._shrink, jit_compile=True)

    def _apply_weight_decay(self, variables: Any) -> None:
        """Nothing: `update_step` decays on its way."""

    def update_step(self, gradient: Any, variable: tf.Variable) -> None:
        """Updates `variable` by its gradient, a tensor or `tf.IndexedSlices` without duplicates."""
        dtype = variable.dtype.base_dtype
        index = self._index_dict[self._var_key(variable)]
        m, v = self._momentums[index], self._velocities[index]
        rate = tf.cast(self.learning_rate, dtype)
        decays = self.weight_decay and self._use_weight_decay(variable)
        decay = rate * self.weight_decay if decays else None
        size = variable.shape.num_elements() or 0
        slices = isinstance(gradient, tf.IndexedSlices)
        if slices and size >= self.lazy_size:
            self._sparse_step(variable, m, v, gradient, rate, decay)
            return
        if slices:
            rows = variable.shape[0]
            gradient = tf.math.unsorted_segment_sum(gradient.values, gradient.indices, rows)
        if decay is not None:
            shrink = self._shrink_compiled if size >= self.compiled_size else self._shrink
            shrink(variable, 1 - decay)
        self._kernel_step(variable, m, v, gradient, rate)

    def _powers(self, dtype: tf.DType) -> tuple[Any, Any]:
        step = tf.cast(self.iterations + 1, dtype)
        return tf.cast(self.beta_1, dtype) ** step, tf.cast(self.beta_2, dtype) ** step

    def _kernel_step(
        self,
        variable: tf.Variable,
        m: tf.Variable,
        v: tf.Variable,
        gradient: Any,
        rate: Any,
    ) -> None:
        beta_1_power, beta_2_power = self._powers(rate.dtype)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=m.handle,
            v=v.handle,
            beta1_power=beta_1_power,
            beta2_power=beta_2_power,
            lr=rate,
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=gradient,
        )

    @staticmethod
    def _shrink(variable: tf.Variable, factor: Any) -> None:
        variable.assign(variable * factor)

    def _sparse_step(
        self,
        variable: tf.Variable,
        m: tf.Variable,
        v: tf.Variable,
        gradient: tf.IndexedSlices,
        rate: Any,
        decay: Any,
    ) -> None:
        beta_1_power, beta_2_power = self._powers(rate.dtype)
        scale = rate * tf.sqrt(1 - beta_2_power) / (1 - beta_1_power)
        rows = gradient.indices
        old = tf.gather(variable, rows)
        momentum, velocity = tf.gather(m, rows), tf.gather(v, rows)
        momentum += (gradient.values - momentum) * (1 - self.beta_1)
        velocity += (tf.square(gradient.values) - velocity) * (1 - self.beta_2)
        change = scale * momentum / (tf.sqrt(velocity) + self.epsilon)
        if decay is not None:
            change += decay * old
        m.scatter_update(tf.IndexedSlices(momentum, rows))
        v.scatter_update(tf.IndexedSlices(velocity, rows))
        variable.scatter_sub(tf.IndexedSlices(change, rows))

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        config = super().get_config()
        for name in ("amsgrad", "jit_compile"):
            config.pop(name, None)
        return {**config, "compiled_size": self.compiled_size, "lazy_size": self.lazy_size}
