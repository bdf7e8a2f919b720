"""Under the same seed everything happens the same way twice."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance import registry
from tests.conformance.arrays import MASK, draw
from tests.conformance.cases import tensors
from tfr_moe._compat import tf


def one_training_step(case, seed):
    """Outputs, added losses and gradients of a fresh model."""
    tf.keras.utils.set_random_seed(seed)
    model = case.model()
    with tf.GradientTape() as tape:
        outputs = model(tensors(draw(case.inputs)), training=True)
        parts = [tf.reduce_sum(tf.cast(v, tf.float32)) for v in outputs.values()]
        total = tf.add_n([*parts, *model.losses])
    gradients = tape.gradient(total, model.trainable_variables)
    found = [tf.convert_to_tensor(g).numpy() for g in gradients if g is not None]
    return [*(outputs[name].numpy() for name in sorted(outputs)), total.numpy(), *found]


def differ(first, second):
    return any(
        a.shape != b.shape or np.abs(a.astype(np.float64) - b).max() > 1e-4
        for a, b in zip(first, second, strict=True)
    )


@pytest.mark.parametrize("case", registry.MODELS, ids=registry.by_name)
def test_a_training_step_repeats_under_its_seed_alone(case):
    first, second, other = (one_training_step(case, seed) for seed in (3, 3, 4))
    for a, b in zip(first, second, strict=True):
        # Threads may add up a gradient in another order.
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert differ(first, other) == bool(case.shared.weights)


@pytest.mark.parametrize("case", registry.MODELS, ids=registry.by_name)
def test_only_cases_that_draw_differ_from_step_to_step(case):
    tf.keras.utils.set_random_seed(5)
    model, values = case.shared, tensors(draw(case.inputs))

    def step():
        outputs = model(values, training=True)
        kept = [
            np.ravel(value.numpy()[MASK] if case.outputs[name] == "BL" else value)
            for name, value in sorted(outputs.items())
        ]
        return np.concatenate([*kept, [float(loss) for loss in model.losses]])

    steps = [step() for _ in range(5)]
    same = all(np.allclose(steps[0], other, rtol=1e-5, atol=1e-6) for other in steps[1:])
    assert same != case.draws


@pytest.mark.parametrize("case", registry.MODELS, ids=registry.by_name)
def test_nothing_is_drawn_outside_training(case):
    model, values = case.shared, tensors(draw(case.inputs))
    first, second = model(values, training=False), model(values, training=False)
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])
