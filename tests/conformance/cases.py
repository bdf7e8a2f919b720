"""How a registered object becomes something that every conformance test can run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.conformance.arrays import Array, Values, draw
from tests.conformance.steps import Added, Step, added, run, training_step
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


class Begun(NamedTuple):
    """A model, its untrained weights as they were made, and its first training step."""

    model: Any
    state: list[Any]
    step: Step


def call_layer(layer: Any, tensors: dict[str, Any]) -> Any:
    """Calls a layer whose arguments have the names of the inputs."""
    first, *others = tensors
    return layer(tensors[first], **{name: tensors[name] for name in others})


@dataclass(frozen=True, eq=False)
class ModelCase:
    """A layer or scorer, run as a Keras model over a dictionary of inputs.

    Attributes:
        name: of the case.
        make: a new object, without a seed, so that the global one rules.
        inputs: what it takes, by name.
        outputs: axes of what it returns, by name.
        call: (layer, symbolic inputs) -> outputs; None for a scorer, which builds its own model.
        draws: whether it draws random numbers in training.
        ordered: whether the order in which items stand is what it reads.
    """

    name: str
    make: Callable[[], Any]
    inputs: dict[str, Array]
    outputs: dict[str, str]
    call: Callable[[Any, dict[str, Any]], Any] | None = call_layer
    draws: bool = False
    ordered: bool = False

    @property
    def dtypes(self) -> set[str]:
        """The types of the inputs; "bool" is the mask's."""
        return {array.dtype for array in self.inputs.values()}

    @functools.cached_property
    def begun(self) -> Begun:
        """The shared model as seed 1 makes it."""
        return self.begin(1)

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

    def begin(self, seed: int) -> Begun:
        """A new model and what it does first, under a seed."""
        tf.keras.utils.set_random_seed(seed)
        model = self.model()
        state = [variable.numpy() for variable in model.non_trainable_weights]
        return Begun(model, state, training_step(model, draw(self.inputs)))

    def model(self, subject: Any = None) -> Any:
        """The model of `subject`, or of a new object."""
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
