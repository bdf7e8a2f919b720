"""One tower over the valid items: the DNN that the mixture is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.layers.expert_norm import Norm
from tfr_moe.layers.experts import ExpertTowers


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class ItemTower(tf.keras.layers.Layer):
    """Scores each valid item by one tower, "the same network structure" as a single expert.

    Args:
        hidden_dims: widths of the hidden layers.
        activation: Keras name of the hidden activation.
        dropout: share of hidden units dropped in training.
        seed: seed of initialisation and dropout.
        num_outputs: logits for each item.
        norm: `none`, `batch` or `layer`, over valid items (see `ExpertTowers`).

    Example:
        >>> ItemTower([8])(tf.ones([2, 3, 5]), mask=tf.ones([2, 3], tf.bool)).shape
        TensorShape([2, 3])
    """

    def __init__(
        self,
        hidden_dims: Sequence[int] = (1024, 512, 256),
        activation: str = "relu",
        dropout: float = 0.0,
        seed: int | None = None,
        num_outputs: int = 1,
        norm: Norm = "none",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self._config = {
            "hidden_dims": list(hidden_dims),
            "activation": activation,
            "dropout": dropout,
            "seed": seed,
            "num_outputs": num_outputs,
            "norm": norm,
        }
        self.tower = ExpertTowers(
            1,
            hidden_dims,
            activation,
            dropout,
            seed,
            num_outputs=num_outputs,
            norm=norm,
            name="tower",
            dtype=self.dtype_policy,
        )

    def call(self, inputs: Any, mask: Any = None, training: bool = False) -> Any:
        """Input vectors [B, L, n] and mask [B, L] -> float32 logits, 0 at padded items.

        They are [B, L], with several outputs [B, L, num_outputs].
        """
        if mask is None:
            mask = tf.ones(tf.shape(inputs)[:2], tf.bool)
        only = tf.zeros([tf.shape(inputs)[0], 1], tf.int32)
        logits = self.tower(inputs, only, mask=mask, training=training)
        return tf.cast(tf.squeeze(logits, axis=2), tf.float32)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), **self._config}
