"""Initializers of single and stacked kernels, with seeds."""

from __future__ import annotations

from typing import Any

from tfr_moe._compat import tf


def seeded_initializer(
    initializer: Any, seed: int | None = None, num_kernels: int = 1, factor: float = 1.0
) -> Any:
    """Copies a Keras initializer with a seed, for one kernel or a stack of kernels.

    Keras treats the leading axis of a stack [N, in, out] as that of a convolution, so its
    variance-scaling initializers (Glorot, He, LeCun) would start the kernels too small. An
    initializer with a seed keeps it; values are multiplied by `factor`, > 0.

    Example:
        >>> glorot = tf.keras.initializers.GlorotUniform()
        >>> kernels = seeded_initializer(glorot, seed=1, num_kernels=100)([100, 2, 4])
        >>> float(tf.reduce_max(tf.abs(kernels))) > 0.9  # sqrt(6 / (2 + 4)) = 1
        True
    """
    keras = tf.keras.initializers
    if isinstance(initializer, keras.VarianceScaling):
        scale = initializer.scale * num_kernels * factor**2
        own = initializer.seed
        return keras.VarianceScaling(
            scale, initializer.mode, initializer.distribution, seed if own is None else own
        )
    copy = initializer
    if isinstance(initializer, keras.Initializer):
        config = initializer.get_config()
        if "seed" in config and config["seed"] is None:
            config["seed"] = seed
        copy = type(initializer).from_config(config)
    if factor == 1:
        return copy

    def scaled(shape: Any, dtype: Any = None, **kwargs: Any) -> tf.Tensor:
        return factor * copy(shape, dtype=dtype, **kwargs)

    return scaled
