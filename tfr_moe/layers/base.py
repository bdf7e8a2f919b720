"""The configuration of layers, losses and metrics, from the arguments of their constructors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfr_moe._compat import tf


def _plain(name: str, value: Any) -> Any:
    """An argument as JSON values; Keras wraps containers that a layer holds."""
    if name.endswith("_initializer"):
        return tf.keras.initializers.serialize(value)
    if name.endswith("_regularizer"):
        return tf.keras.regularizers.serialize(value)
    if name == "activation" and callable(value):
        return tf.keras.activations.serialize(value)
    if isinstance(value, Mapping):
        return {key: _plain("", entry) for key, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain("", entry) for entry in value]
    return value


def arguments_of(owner: Any, classes: Sequence[type], skip: Sequence[str] = ()) -> dict[str, Any]:
    """The arguments of the constructors of some classes, from the attributes of the same names.

    Args:
        owner: the object.
        classes: some of its classes, the most derived one first.
        skip: arguments to leave out.
    """
    config = {}
    for kind in reversed(classes):
        constructor = vars(kind).get("__init__")
        if constructor is not None:
            arguments = inspect.getfullargspec(constructor)
            for name in (*arguments.args[1:], *arguments.kwonlyargs):
                if name not in skip:
                    config[name] = _plain(name, getattr(owner, name))
    return config


def without_autograph(call: Callable[..., Any]) -> Callable[..., Any]:
    """A `call` that Keras traces as it is; Keras reads its arguments from the signature."""
    plain: Any = tf.autograph.experimental.do_not_convert(call)
    plain.__signature__ = inspect.signature(call)
    return plain


class Configured:
    """A mix-in for Keras layers, losses and metrics: `get_config` is the constructor's arguments.

    Each argument must be kept as the attribute of the same name. `call` is traced without
    AutoGraph, whose conversion takes most of the time in which the first model of a process is
    built: write control flow over tensors with `tf.cond` and `tf.while_loop`.

    Example:
        >>> class Scaled(Configured, tf.keras.layers.Layer):
        ...     def __init__(self, factors, **kwargs):
        ...         super().__init__(**kwargs)
        ...         self.factors = tuple(factors)
        >>> Scaled([1.0, 2.0]).get_config()["factors"]
        [1.0, 2.0]
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "call" in vars(cls):
            cls.call = without_autograph(vars(cls)["call"])  # type: ignore[attr-defined]

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, those of base classes included."""
        config: dict[str, Any] = super().get_config()  # type: ignore[misc]
        classes = type(self).mro()
        return {**config, **arguments_of(self, classes[: classes.index(Configured)])}
