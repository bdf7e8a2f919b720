"""How a registered object becomes something that every conformance test can run."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.conformance.arrays import Array, Values, draw
from tests.conformance.steps import Added, Step, added, run, tensors, training_step
from tfr_moe._compat import tf


def named(outputs: Any) -> dict[str, Any]:
    """Whatever a layer returns as a flat dictionary of tensors."""
    if hasattr(outputs, "_asdict"):
        outputs = outputs._asdict()
    if not isinstance(outputs, Mapping):
        return {"output": outputs}
    flat: dict[str, Any] = {}
    for name, value in outputs.items():
        flat.update(value if isinstance(value, Mapping) else {name: value})
    return flat


def through_json(config: Any) -> Any:
    """A configuration, written and read."""
    return json.loads(json.dumps(config))


def through_keras(subject: Any) -> Any:
    """Serialised and read back by Keras alone, without custom objects."""
    config = through_json(tf.keras.utils.serialize_keras_object(subject))
    assert config["registered_name"] == f"tfr_moe>{type(subject).__name__}"
    return tf.keras.utils.deserialize_keras_object(config)


def copied(subject: Any) -> Any:
    """A new layer or scorer of the same configuration."""
    if isinstance(subject, tf.keras.layers.Layer):
        return through_keras(subject)
    return type(subject).from_config(through_json(subject.get_config()))


@contextlib.contextmanager
def precision(policy: str) -> Iterator[None]:
    """Sets the global policy."""
    tf.keras.mixed_precision.set_global_policy(policy)
    try:
        yield
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")


class Begun(NamedTuple):
    """A model, its weights as they were made, what is moved by no training, and its first step."""

    model: Any
    weights: list[Any]
    state: list[Any]
    step: Step


class Half(NamedTuple):
    """A model under mixed precision with the shared weights, and those that it was made with."""

    model: Any
    weights: list[Any]


def call_layer(layer: Any, tensors: dict[str, Any]) -> Any:
    """Calls a layer whose arguments have the names of the inputs."""
    first, *others = tensors
    return layer(tensors[first], **{name: tensors[name] for name in others})


class CalledLayer(tf.keras.Model):
    """A layer that is called on a dictionary of inputs, without symbolic tensors."""

    def __init__(self, layer: Any, call: Callable[[Any, dict[str, Any]], Any]):
        super().__init__(autocast=False)  # the layer casts its inputs itself
        self.layer = layer
        self._call = call

    def call(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return named(self._call(self.layer, inputs))


@dataclass(frozen=True, eq=False)
class ModelCase:
    """A layer or scorer, run as a Keras model over a dictionary of inputs.

    Attributes:
        name: of the case.
        make: a new object, without a seed, so that the global one rules.
        inputs: what it takes, by name.
        outputs: axes of what it returns, by name.
        call: (layer, inputs by name) -> outputs; None for a scorer, which builds its own model.
        draws: whether it draws random numbers in training.
        ordered: whether the order in which items stand is what it reads.
        direct: whether `call` makes no layers of its own, so that it can be called twice.
    """

    name: str
    make: Callable[[], Any]
    inputs: dict[str, Array]
    outputs: dict[str, str]
    call: Callable[[Any, dict[str, Any]], Any] | None = call_layer
    draws: bool = False
    ordered: bool = False
    direct: bool = True

    @property
    def dtypes(self) -> set[str]:
        """The types of the inputs; "bool" is the mask's."""
        return {array.dtype for array in self.inputs.values()}

    @functools.cached_property
    def begun(self) -> Begun:
        """The shared model as seed 1 makes it."""
        return self._begin(self.model, self.make())

    @functools.cached_property
    def again(self) -> Begun:
        """The same once more, of an object that is a copy by its configuration."""
        return self._begin(self.called, copied(self.make()))

    @functools.cache  # noqa: B019 - a case lives as long as the process
    def half(self, policy: str) -> Half:
        """A model under a policy and seed 2, with the weights of the shared one."""
        tf.keras.utils.set_random_seed(2)
        with precision(policy):
            model = self.called()
        made = model.get_weights()
        model.set_weights(self.shared.get_weights())
        return Half(model, made)

    @property
    def shared(self) -> Any:
        """One model for all tests that leave its trainable weights as they are.

        The others, which training in a forward pass may move, are put back.
        """
        for variable, value in zip(
            self.begun.model.non_trainable_weights, self.begun.state, strict=True
        ):
            variable.assign(value)
        return self.begun.model

    @functools.cached_property
    def scored(self) -> dict[str, Any]:
        """What the shared model makes of its inputs."""
        return run(self.shared, draw(self.inputs))

    @functools.cached_property
    def added(self) -> Added:
        """What the shared model adds and shows in training on its inputs."""
        return added(self.shared, draw(self.inputs))

    def _begin(self, modelled: Callable[[Any], Any], subject: Any) -> Begun:
        """The model of an object and what it does first, under seed 1."""
        tf.keras.utils.set_random_seed(1)
        model = modelled(subject)
        weights = model.get_weights()
        state = [variable.numpy() for variable in model.non_trainable_weights]
        return Begun(model, weights, state, training_step(model, draw(self.inputs)))

    def called(self, subject: Any = None) -> Any:
        """As `model`, without symbolic tensors where it is of a layer: it is made in less time."""
        if self.call is None or not self.direct:
            return self.model(subject)
        model = CalledLayer(subject or self.make(), self.call)
        model(tensors(draw(self.inputs)))
        return model

    def model(self, subject: Any = None) -> Any:
        """The model of `subject`, or of a new object, over symbolic inputs."""
        subject = subject or self.make()
        if self.call is None:
            built = subject.build_model()
            return tf.keras.Model(built.input, named(built.output))
        symbolic = {
            name: tf.keras.Input(array.shape, dtype=array.dtype, name=name)
            for name, array in self.inputs.items()
        }
        return tf.keras.Model(symbolic, named(self.call(subject, symbolic)))


def items(labels: Any) -> int:
    """The number of valid items."""
    return int((labels >= 0).sum())


def nonempty(labels: Any) -> int:
    """The number of lists with an item."""
    return int((labels >= 0).any(axis=1).sum())


def clicked(labels: Any) -> int:
    """The number of lists with something relevant."""
    return int((labels > 0).any(axis=1).sum())


@dataclass(frozen=True)
class LossCase:
    """A loss over labels and logits, which is a mean over what `count` counts."""

    name: str
    make: Callable[[], Any]
    inputs: dict[str, Array]
    count: Callable[[Any], int] = items

    def value(self, loss: Any, values: Values) -> Any:
        """The scalar loss."""
        return loss(values["y_true"], values["y_pred"])


def update_by_scores(metric: Any, values: Values) -> None:
    """How a ranking metric is fed."""
    metric.update_state(values["y_true"], values["y_pred"])


@dataclass(frozen=True)
class MetricCase:
    """A metric, fed batch by batch."""

    name: str
    make: Callable[[], Any]
    inputs: dict[str, Array]
    update: Callable[[Any, Values], None] = update_by_scores

    def value(self, metric: Any, *batches: Values) -> dict[str, Any]:
        """What the metric says after the batches, by name."""
        for values in batches:
            self.update(metric, values)
        result = metric.result()
        return dict(result) if isinstance(result, Mapping) else {metric.name: result}
