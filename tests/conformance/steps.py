"""Running a model: its outputs, what it adds to a loss, and one step of training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tests.conformance.arrays import Values
from tfr_moe._compat import tf


def tensors(values: Values) -> dict[str, Any]:
    """Values as tensors."""
    return {name: tf.constant(value) for name, value in values.items()}


def run(model: Any, values: Values, training: bool = False) -> dict[str, Any]:
    """The outputs of a model as arrays."""
    outputs = model(tensors(values), training=training)
    return {name: value.numpy() for name, value in outputs.items()}


class Added(NamedTuple):
    """What layers add to the loss in training, and what their metrics show of that step."""

    losses: list[float]
    metrics: list[float]


def added(model: Any, values: Values) -> Added:
    """Both, of one forward pass in training."""
    model.reset_metrics()
    model(tensors(values), training=True)
    results = (metric.result() for metric in model.metrics)
    values_shown = [v for r in results for v in (r.values() if isinstance(r, Mapping) else [r])]
    return Added([float(loss) for loss in model.losses], [float(value) for value in values_shown])


class Step(NamedTuple):
    """One step of training.

    Attributes:
        outputs: by name.
        total: the sum of a term of each output and of what the layers add to the loss.
        gradients: of the total by the trainable weights; None where it doesn't reach one.
    """

    outputs: dict[str, Any]
    total: Any
    gradients: list[Any]

    @property
    def arrays(self) -> list[Any]:
        """Everything in it, in one order."""
        outputs = [self.outputs[name] for name in sorted(self.outputs)]
        return [*outputs, self.total, *(g for g in self.gradients if g is not None)]


def training_step(
    model: Any, values: Values, term: Callable[[str, Any], Any] = lambda _, value: value
) -> Step:
    """A step whose total sums `term(name, output)`; integer outputs have no gradient."""
    with tf.GradientTape() as tape:
        outputs = model(tensors(values), training=True)
        terms = (term(name, tf.cast(value, tf.float32)) for name, value in outputs.items())
        total = tf.add_n([*(tf.reduce_sum(part) for part in terms), *model.losses])
    gradients = tape.gradient(total, model.trainable_variables)
    return Step(
        {name: value.numpy() for name, value in outputs.items()},
        total.numpy(),
        [None if g is None else tf.convert_to_tensor(g).numpy() for g in gradients],
    )
