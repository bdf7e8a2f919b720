"""Adversarial regularisation: reward idle experts that disagree with the active ones."""

from __future__ import annotations

from typing import Any

from tfr_moe._compat import tf
from tfr_moe.layers.warmup import make_step, next_factor
from tfr_moe.reduction import mean_over_items, seed_of_replica


def sample_idle_experts(
    indices: Any, num_experts: int, num_adversarial: int, seed: int | None = None
) -> Any:
    """Draws D experts uniformly without replacement from those that were not selected.

    Args:
        indices: int32 [..., K], the active experts.
        num_experts: N.
        num_adversarial: D <= N - K.
        seed: seed of the draw.

    Returns:
        int32 [..., D], drawn anew at each call and for each list (or item).

    Raises:
        ValueError: if D > N - K.
    """
    top_k = int(indices.shape[-1])
    if num_adversarial > num_experts - top_k:
        raise ValueError(
            f"num_adversarial must be <= num_experts - top_k = {num_experts - top_k}. "
            f"Received: num_adversarial={num_adversarial}"
        )
    active = tf.reduce_max(tf.one_hot(indices, num_experts), axis=-2)
    # The D largest of independent uniform draws are a uniform choice; active experts fall below all.
    draw = tf.random.uniform(tf.shape(active), seed=seed_of_replica(seed)) - 2.0 * active
    return tf.math.top_k(draw, k=num_adversarial).indices


def _without_list_mean(logits: Any, mask: Any) -> Any:
    """Logits [B, L, S] less each expert's mean over the valid items of the list; 0 at padded items."""
    valid = mask[..., tf.newaxis]
    kept = tf.where(valid, logits, tf.zeros([], logits.dtype))
    count = tf.reduce_sum(tf.cast(valid, logits.dtype), axis=1, keepdims=True)
    mean = tf.math.divide_no_nan(tf.reduce_sum(kept, axis=1, keepdims=True), count)
    return tf.where(valid, kept - mean, tf.zeros([], logits.dtype))


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class AdversarialExpertPenalty(tf.keras.layers.Layer):
    r"""Rewards disagreement between active and idle experts.

    $$ \text{AdvLoss} = \sum_{i \in U_{topK},\, j \in U_D}
       \left( \sigma(E_i(X)) - \sigma(E_j(X)) \right)^2 \;\in\; [0, K D] $$

    (eq. 11 of Xiao et al.). In training the layer adds `-weight` times the mean over valid items to the
    losses, so that a larger disagreement lowers the objective (eq. 13). Gradients reach active and idle
    towers. The paper's public code compares logits, and takes the idle experts with the lowest scores;
    we follow the paper: sigmoids, and idle experts drawn at random (`sample_idle_experts`).

    A loss over lists does not see a constant that an expert adds to all items of a list, so experts can
    disagree by it for nothing. `centred` takes each expert's mean over the valid items of the list from
    its logits first. `margin` ends the reward of a pair once it is that far apart: (min(|d|, margin))^2 in
    place of d^2.

    Args:
        weight: lambda_2, >= 0.
        margin: distance in probability, above 0 and at most 1, beyond which there is no more reward; None
            for none.
        centred: whether logits are compared without their mean over the list.
        warmup_steps: training steps over which the weight grows from 0.

    Example:
        >>> penalty = AdversarialExpertPenalty(weight=0.1)
        >>> active, idle = tf.zeros([1, 2, 1]), tf.fill([1, 2, 1], 100.0)
        >>> penalty(active, idle, mask=tf.constant([[True, True]])).numpy()
        array([[0.25, 0.25]], dtype=float32)
    """

    def __init__(
        self,
        weight: float = 1e-3,
        margin: float | None = None,
        centred: bool = False,
        warmup_steps: int = 0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if weight < 0:
            raise ValueError(f"weight must be >= 0. Received: weight={weight}")
        if margin is not None and not 0 < margin <= 1:
            raise ValueError(f"margin must be in (0, 1] or None. Received: margin={margin}")
        self.weight, self.margin, self.centred = weight, margin, centred
        self.warmup_steps = warmup_steps
        self.step = make_step(self, warmup_steps)

    def call(self, active_logits: Any, idle_logits: Any, mask: Any, training: bool = False) -> Any:
        """Computes AdvLoss and, in training, adds it to the losses with a minus.

        Args:
            active_logits: [B, L, K].
            idle_logits: [B, L, D].
            mask: bool [B, L].
            training: whether to add the loss.

        Returns:
            AdvLoss, [B, L]; 0 at padded items if their logits are equal.
        """
        # Keras casts the first argument only.
        idle_logits = tf.cast(idle_logits, active_logits.dtype)
        if self.centred:
            active_logits = _without_list_mean(active_logits, mask)
            idle_logits = _without_list_mean(idle_logits, mask)
        active = tf.sigmoid(active_logits)[..., :, tf.newaxis]
        idle = tf.sigmoid(idle_logits)[..., tf.newaxis, :]
        distance = tf.abs(active - idle)
        if self.margin is not None:
            distance = tf.minimum(distance, self.margin)
        disagreement = tf.reduce_sum(tf.square(distance), axis=[-2, -1])
        if training and self.weight > 0:
            weight = self.weight * next_factor(self.step, self.warmup_steps)
            self.add_loss(-weight * mean_over_items(disagreement, mask))
        return disagreement

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "weight": self.weight,
            "margin": self.margin,
            "centred": self.centred,
            "warmup_steps": self.warmup_steps,
        }
