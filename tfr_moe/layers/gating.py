"""Noisy top-K gating and the load-balancing terms that go with it."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from tfr_moe._compat import tf
from tfr_moe.reduction import seed_of_replica


class GateOutput(NamedTuple):
    """What a gate decides, for each list (`...` = B) or each item (`...` = B, L).

    Attributes:
        logits: [..., N] clean logits G, without noise.
        noisy_logits: [..., N] logits that the selection was made from; equal to `logits` outside
            training.
        noise_stddev: [..., N] standard deviation of the noise; zeros outside training.
        indices: int32 [..., K], the selected experts, best first.
        weights: [..., K], their softmax weights; they sum to 1.
    """

    logits: Any
    noisy_logits: Any
    noise_stddev: Any
    indices: Any
    weights: Any


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class NoisyTopKGate(tf.keras.layers.Layer):
    r"""Selects K of N experts from a dense gate input.

    $$ G = x W, \qquad P_i = \frac{\exp(H_i)}{\sum_{j \in U_K} \exp(H_j)} \text{ for } i \in U_K,
       \text{ 0 elsewhere} $$

    (eqs. 4 to 6 of Xiao et al., "Adversarial Mixture Of Experts with Category Hierarchy Soft
    Constraint"). U_K is the set of the K largest H. Outside training H = G. In training
    H = G + softplus(x W_noise) * e with e ~ Normal(0, 1) per expert (Shazeer et al., 2017), so that
    the choice of experts is explored and differentiable in expectation.

    The kernel is stored divided by `learning_rate_multiplier` and multiplied back in the forward
    pass: under Adam and its kin, whose step does not depend on the scale of the gradient, the gate
    then moves that many times faster than the rest of the model, whatever optimizer object is used.
    Both kernels start as glorot-uniform and zeros.

    With a `bias_rate` the selection (not the weights) adds a bias of each expert, which no gradient
    reaches: after each training step it rises by the rate for experts with less than the mean load and
    falls for the others, so that experts are balanced without a loss that pulls at the gate (Wang et
    al. 2024, "Auxiliary-loss-free load balancing strategy for mixture-of-experts"). See `balance`.

    Args:
        num_experts: N.
        top_k: K, 1 <= K <= N.
        noisy: whether to add noise in training.
        learning_rate_multiplier: factor on the gate's step under Adam-like optimizers, > 0.
        seed: seed of initialisation and noise.
        init_scale: factor on the kernel's start; 0 starts all experts equal.
        bias_rate: step of the selection's bias; 0 leaves it out.

    Raises:
        ValueError: if K is not in 1 .. N.

    Example:
        >>> gate = NoisyTopKGate(num_experts=4, top_k=2)
        >>> out = gate(tf.ones([3, 8]))
        >>> out.indices.shape, out.weights.shape
        (TensorShape([3, 2]), TensorShape([3, 2]))
    """

    def __init__(
        self,
        num_experts: int,
        top_k: int,
        noisy: bool = True,
        learning_rate_multiplier: float = 1.0,
        seed: int | None = None,
        init_scale: float = 1.0,
        bias_rate: float = 0.0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        for name, value in (("init_scale", init_scale), ("bias_rate", bias_rate)):
            if value < 0:
                raise ValueError(f"{name} must be >= 0. Received: {name}={value}")
        if not 1 <= top_k <= num_experts:
            raise ValueError(
                f"top_k must be in 1 .. num_experts = {num_experts}. Received: top_k={top_k}"
            )
        if learning_rate_multiplier <= 0:
            raise ValueError(
                f"learning_rate_multiplier must be > 0. Received: {learning_rate_multiplier}"
            )
        self.num_experts = num_experts
        self.top_k = top_k
        self.noisy = noisy
        self.learning_rate_multiplier = learning_rate_multiplier
        self.seed = seed
        self.init_scale = init_scale
        self.bias_rate = bias_rate

    def build(self, input_shape: Any) -> None:
        """Creates the two kernels, [q, N]."""
        shape = [int(input_shape[-1]), self.num_experts]
        limit = self.init_scale * math.sqrt(6.0 / sum(shape)) / self.learning_rate_multiplier
        uniform = tf.keras.initializers.RandomUniform(-limit, limit, seed=self.seed)
        self.kernel = self.add_weight("kernel", shape, initializer=uniform)
        if self.noisy:
            self.noise_kernel = self.add_weight("noise_kernel", shape, initializer="zeros")
        if self.bias_rate > 0:
            self.bias = self.add_weight(
                "bias",
                [self.num_experts],
                initializer="zeros",
                trainable=False,
                aggregation=tf.VariableAggregation.MEAN,
            )
        super().build(input_shape)

    def call(self, inputs: Any, offset: Any = None, training: bool = False) -> GateOutput:
        """Gates `inputs` [..., q]; returns a `GateOutput` over the same leading axes.

        `offset`, [..., N], is added to the clean logits: those of another gate, such as a parent's.
        """
        scaled = inputs * tf.cast(self.learning_rate_multiplier, inputs.dtype)
        logits = tf.matmul(scaled, tf.cast(self.kernel, inputs.dtype))
        if offset is not None:
            logits += tf.cast(offset, logits.dtype)
        stddev = tf.zeros_like(logits)
        noisy_logits = logits
        if training and self.noisy:
            stddev = tf.nn.softplus(tf.matmul(scaled, tf.cast(self.noise_kernel, inputs.dtype)))
            seed = seed_of_replica(self.seed)
            noise = tf.random.normal(tf.shape(logits), dtype=logits.dtype, seed=seed)
            noisy_logits = logits + stddev * noise
        if self.bias_rate > 0:
            biased = noisy_logits + tf.cast(tf.convert_to_tensor(self.bias), logits.dtype)
            indices = tf.math.top_k(biased, k=self.top_k).indices
            top = tf.gather(noisy_logits, indices, batch_dims=len(indices.shape) - 1)
        else:
            top, indices = tf.math.top_k(noisy_logits, k=self.top_k)
        return GateOutput(logits, noisy_logits, stddev, indices, tf.nn.softmax(top))

    def as_selected(self, gate: GateOutput) -> GateOutput:
        """A decision with the bias in its logits: those that the choice of experts was made by."""
        if self.bias_rate == 0:
            return gate
        bias = tf.cast(tf.convert_to_tensor(self.bias), gate.logits.dtype)
        return gate._replace(logits=gate.logits + bias, noisy_logits=gate.noisy_logits + bias)

    def balance(self, load: Any) -> None:
        """Moves the bias by `bias_rate` towards experts with less than the mean load [N]."""
        if self.bias_rate > 0:
            gap = tf.sign(tf.reduce_mean(load) - tf.cast(load, tf.float32))
            self.bias.assign_add(tf.cast(self.bias_rate * gap, self.bias.dtype))

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "num_experts": self.num_experts,
            "top_k": self.top_k,
            "noisy": self.noisy,
            "learning_rate_multiplier": self.learning_rate_multiplier,
            "seed": self.seed,
            "init_scale": self.init_scale,
            "bias_rate": self.bias_rate,
        }


def expert_importance(gate: GateOutput, num_items: Any, num_experts: int) -> Any:
    r"""Sum of the gate weights of each expert over items (Shazeer et al. 2017, section 4).

    Args:
        gate: for lists or items.
        num_items: [...] number of valid items behind each gate decision: a list counts for its
            items, padding for nothing.
        num_experts: N.

    Returns:
        float [N].
    """
    weights = gate.weights * tf.cast(num_items, gate.weights.dtype)[..., tf.newaxis]
    return tf.math.unsorted_segment_sum(
        tf.reshape(weights, [-1]), tf.reshape(gate.indices, [-1]), num_experts
    )


def expert_load(gate: GateOutput, num_items: Any, top_k: int) -> Any:
    r"""Smooth estimate of how many items each expert receives (Shazeer et al. 2017, appendix A).

    $$ \text{load}_i = \sum_x \Phi\left( \frac{G_i(x) - \text{kth}(H(x), i)}{\sigma_i(x)} \right) $$

    where kth(H, i) is the K-th largest of the noisy logits other than H_i, sigma the noise's standard
    deviation and Phi the normal distribution function: the probability that i is still selected when
    only its own noise is drawn anew. Without noise (outside training, or K = N) it is the plain count.

    Args:
        gate: for lists or items.
        num_items: [...] number of valid items behind each gate decision.
        top_k: K.

    Returns:
        float [N].
    """
    num_items = tf.cast(num_items, gate.logits.dtype)[..., tf.newaxis]
    num_experts = gate.logits.shape[-1]
    selected = tf.reduce_sum(
        tf.one_hot(gate.indices, num_experts, dtype=gate.logits.dtype), axis=-2
    )
    probability = selected
    if top_k < num_experts:
        top = tf.math.top_k(gate.noisy_logits, k=top_k + 1).values
        # The K-th largest of the others: for a selected expert that is the first one left out.
        threshold = tf.where(selected > 0, top[..., top_k:], top[..., top_k - 1 : top_k])
        stddev = gate.noise_stddev
        safe = tf.where(stddev > 0, stddev, tf.ones_like(stddev))
        smooth = 0.5 * tf.math.erfc((threshold - gate.logits) / (safe * math.sqrt(2.0)))
        probability = tf.where(stddev > 0, smooth, selected)
    return tf.reduce_sum(tf.reshape(probability * num_items, [-1, num_experts]), axis=0)


def squared_variation(loads: Any) -> Any:
    r"""Squared coefficient of variation, Var(v) / Mean(v)^2; 0 where all loads are 0.

    Example:
        >>> float(squared_variation(tf.constant([1.0, 3.0])))
        0.25
    """
    loads = tf.cast(loads, tf.float32)
    mean = tf.reduce_mean(loads)
    return tf.math.divide_no_nan(tf.math.reduce_variance(loads), tf.square(mean))
