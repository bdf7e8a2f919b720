"""The configuration of layers, losses and metrics by their arguments, and seeded initializers."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.layers.checks import check_widths
from tfr_moe.schema import FeatureSchema

_LARGE = 1 << 20
"""Number of elements from which initial values are made in a graph."""


def plain(name: str, value: Any) -> Any:
    """An argument as JSON values; Keras wraps containers that a layer holds."""
    if name.endswith("_initializer"):
        return tf.keras.initializers.serialize(value)
    if name.endswith("_regularizer"):
        return tf.keras.regularizers.serialize(value)
    if name == "activation" and callable(value):
        return tf.keras.activations.serialize(value)
    if isinstance(value, FeatureSchema):
        return value.as_dict()
    value = value._asdict() if hasattr(value, "_asdict") else value
    if isinstance(value, Mapping):
        return {key: plain("", entry) for key, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain("", entry) for entry in value]
    return value


def _stored(name: str, value: Any) -> Any:
    """The inverse of `plain`: an argument as a layer holds it."""
    if name.endswith("_initializer"):
        return tf.keras.initializers.get(value)
    if name.endswith("_regularizer"):
        return tf.keras.regularizers.get(value)
    if name == "activation":
        return tf.keras.activations.get(value)
    if name.endswith("hidden_dims"):
        return check_widths(name, value)
    if name == "dropout" and not 0 <= value < 1:
        raise ValueError(f"dropout must be at least 0 and below 1. Received: dropout={value}")
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


class Configured:
    """A mix-in for Keras layers, losses and metrics: `get_config` is the constructor's arguments.

    Each argument must be an attribute of the same name, as `keep` makes it. `call` is traced
    without AutoGraph, whose conversion takes most of the time in which the first model of a process
    is built: write control flow over tensors with `tf.cond` and `tf.while_loop`.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if call := vars(cls).get("call"):
            plain: Any = tf.autograph.experimental.do_not_convert(call)
            # Keras reads the arguments of a call from its signature.
            plain.__signature__ = inspect.signature(call)
            cls.call = plain  # type: ignore[attr-defined]

    def keep(self, arguments: Mapping[str, Any]) -> None:
        """Sets the arguments of a constructor, its `locals()`, as attributes of their kind.

        Names of initializers, regularizers and activations become objects, sequences tuples.
        Raises a ValueError for widths that are no sequence, and a dropout outside of [0, 1).
        """
        for name, value in arguments.items():
            if name not in ("self", "__class__", "kwargs"):
                setattr(self, name, _stored(name, value))

    def arguments(self, *names: str) -> dict[str, Any]:
        """Some of the arguments, for a layer that has them too."""
        return {name: getattr(self, name) for name in names}

    def offset_seed(self, offset: int) -> int | None:
        """The seed of one part of the layer, different for each `offset`."""
        return None if self.seed is None else self.seed + offset  # type: ignore[attr-defined]

    @classmethod
    def argument_names(cls) -> list[str]:
        """The constructor's arguments by name, those of base classes included."""
        names: dict[str, None] = {}
        for kind in reversed(cls.mro()[: cls.mro().index(Configured)]):
            if "__init__" in vars(kind):
                signature = inspect.getfullargspec(vars(kind)["__init__"])
                names |= dict.fromkeys((*signature.args[1:], *signature.kwonlyargs))
        return list(names)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        arguments = {name: plain(name, getattr(self, name)) for name in self.argument_names()}
        return {**super().get_config(), **arguments}  # type: ignore[misc]


class ConfiguredLayer(Configured, tf.keras.layers.Layer):
    """A Keras layer whose configuration is its constructor's arguments, see `Configured`."""

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls the layer with all tensors but the first by name.

        Keras orders the layers of a functional model by their tensors, and a loaded model has the
        names alone: with positional tensors, it would take the weights of one layer for another.
        """
        # Of the class, since Keras replaces that of the object while it saves a model.
        signature = inspect.signature(type(self).call)
        given = signature.bind(self, inputs, *args, **kwargs).arguments
        return super().__call__(inputs, **dict(list(given.items())[2:]))

    def add_float32_weight(self, name: str, shape: Any, start: Any, **kwargs: Any) -> Any:
        """Creates a variable that stays float32 under every precision policy."""
        kwargs |= {"initializer": start, "experimental_autocast": False}
        return self.add_weight(name, shape, tf.float32, **kwargs)


def seeded_initializer(
    initializer: Any, seed: int | None = None, num_kernels: int = 1, factor: float = 1.0
) -> Any:
    """Copies a Keras initializer with a seed, for one kernel or a stack of kernels.

    Keras treats the leading axis of a stack [N, in, out] as that of a convolution, so its
    variance-scaling initializers (Glorot, He, LeCun) would start the kernels too small. An
    initializer with a seed keeps it; values are multiplied by `factor`, > 0.
    """
    keras = tf.keras.initializers
    if isinstance(initializer, keras.VarianceScaling):
        scale = initializer.scale * num_kernels * factor**2
        current = initializer.seed
        return keras.VarianceScaling(
            scale, initializer.mode, initializer.distribution, seed if current is None else current
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


def in_one_piece(initializer: Any) -> Callable[..., tf.Tensor]:
    """The same initial values, without temporary tensors of the size of large ones.

    TensorFlow's pool of memory would keep them. The operations of a graph reuse their inputs, but
    a `tf.function` without arguments computes its values a second time, to fold them.
    """

    @tf.autograph.experimental.do_not_convert
    def initial(shape: Any, dtype: Any = None) -> tf.Tensor:
        if math.prod(shape) < _LARGE:
            return initializer(shape, dtype=dtype)
        single = tf.data.Dataset.from_tensors(0).map(lambda _: initializer(shape, dtype=dtype))
        return single.get_single_element()

    return initial
