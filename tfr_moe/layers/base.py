"""The configuration of layers, losses and metrics, from the arguments of their constructors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfr_moe._compat import tf


def plain(name: str, value: Any) -> Any:
    """An argument as JSON values; Keras wraps containers that a layer holds."""
    if name.endswith("_initializer"):
        return tf.keras.initializers.serialize(value)
    if name.endswith("_regularizer"):
        return tf.keras.regularizers.serialize(value)
    if name == "activation" and callable(value):
        return tf.keras.activations.serialize(value)
    if isinstance(value, Mapping):
        return {key: plain("", entry) for key, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain("", entry) for entry in value]
    return value


def _kept(name: str, value: Any) -> Any:
    """The inverse of `plain`: an argument as a layer holds it."""
    if name.endswith("_initializer"):
        return tf.keras.initializers.get(value)
    if name.endswith("_regularizer"):
        return tf.keras.regularizers.get(value)
    if name == "activation":
        return tf.keras.activations.get(value)
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def without_autograph(call: Callable[..., Any]) -> Callable[..., Any]:
    """A `call` that Keras traces as it is; Keras reads its arguments from the signature."""
    plain: Any = tf.autograph.experimental.do_not_convert(call)
    plain.__signature__ = inspect.signature(call)
    return plain


class Configured:
    """A mix-in for Keras layers, losses and metrics: `get_config` is the constructor's arguments.

    Each argument must be an attribute of the same name, as `keep` makes it. `call` is traced
    without AutoGraph, whose conversion takes most of the time in which the first model of a process
    is built: write control flow over tensors with `tf.cond` and `tf.while_loop`.

    Example:
        >>> class Scaled(Configured, tf.keras.layers.Layer):
        ...     def __init__(self, factors, kernel_initializer="zeros", **kwargs):
        ...         super().__init__(**kwargs)
        ...         self.keep(locals())
        >>> layer = Scaled([1.0, 2.0])
        >>> layer.factors, type(layer.kernel_initializer).__name__
        ((1.0, 2.0), 'Zeros')
        >>> layer.get_config()["factors"]
        [1.0, 2.0]
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "call" in vars(cls):
            cls.call = without_autograph(vars(cls)["call"])  # type: ignore[attr-defined]

    def keep(self, arguments: Mapping[str, Any]) -> None:
        """Sets the arguments of a constructor, its `locals()`, as attributes.

        Names of initializers, regularizers and activations become objects, sequences tuples.
        """
        for name, value in arguments.items():
            if name not in ("self", "__class__", "args", "kwargs"):
                setattr(self, name, _kept(name, value))

    def arguments(self, *names: str) -> dict[str, Any]:
        """Some of the arguments, for a layer that has them too."""
        return {name: getattr(self, name) for name in names}

    def offset_seed(self, offset: int) -> int | None:
        """The seed of one part of the layer, different for each `offset`."""
        return None if self.seed is None else self.seed + offset  # type: ignore[attr-defined]

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, those of base classes included."""
        config: dict[str, Any] = super().get_config()  # type: ignore[misc]
        classes = type(self).mro()
        for kind in reversed(classes[: classes.index(Configured)]):
            if "__init__" in vars(kind):
                signature = inspect.getfullargspec(vars(kind)["__init__"])
                for name in (*signature.args[1:], *signature.kwonlyargs):
                    config[name] = plain(name, getattr(self, name))
        return config
