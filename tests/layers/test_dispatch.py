"""ExpertTowers in groups of a fixed size: the same results as by segments, compiled or not."""

import numpy as np
import pytest

from tests.layers.test_experts import random_case, slow_towers
from tfr_moe._compat import tf
from tfr_moe.layers.experts import ExpertTowers
from tfr_moe.layers.mixture import CategoryMixtureOfExperts


def towers(**settings):
    layer = ExpertTowers(6, settings.pop("hidden", (8, 5)), seed=1, **settings)
    layer.build([None, None, 4])
    rng = np.random.default_rng(9)
    for bias in layer.biases:
        bias.assign(rng.normal(size=bias.shape))
    return layer


def alike(other, **settings):
    layer = towers(**settings)
    layer.set_weights(other.get_weights())
    return layer


def skewed(case):
    """The random case with one expert in nine choices of ten, and expert 5 in none."""
    inputs, indices, mask = case
    rng = np.random.default_rng(3)
    one = np.where(rng.random(indices.shape[:-1]) < 0.9, 2, rng.integers(0, 5, indices.shape[:-1]))
    return inputs, one[..., np.newaxis].astype(np.int32), mask


def result(layer, case, compiled=False, training=True):
    """Outputs, and gradients of the weights and of the valid inputs."""
    inputs, indices, mask = (tf.constant(x) for x in case)

    def step():
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            out = layer(inputs, indices, mask=mask, training=training)
            loss = tf.reduce_sum(tf.sin(out))
        return out, tape.gradient(loss, [*layer.trainable_variables, inputs])

    out, gradients = tf.function(step, jit_compile=True)() if compiled else step()
    return [tf.convert_to_tensor(x).numpy() for x in (out, *gradients)]


CASES = {
    "even": random_case(False),
    "by item": random_case(True),
    "skewed": skewed(random_case(False, batch=12)),
    "skewed by item": skewed(random_case(True)),
    "items alone": random_case(False, size=1),
    "one list": random_case(False, batch=2),
    "choices left out": (lambda x, i, m: (x, np.where(i == 3, -1, i), m))(*random_case(False)),
    "all padding": (lambda x, i, m: (x, i, np.zeros_like(m)))(*random_case(False)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("capacity", [3, 256])
def test_results_and_gradients_are_those_of_segments(name, capacity):
    segments = towers()
    groups = alike(segments, dispatch="capacity", capacity=capacity)
    expected = result(segments, CASES[name])
    # float32 sums in another order
    for got, wanted in zip(result(groups, CASES[name]), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    inputs, indices, mask = CASES[name]
    if (indices >= 0).all():
        quiet = groups(inputs, indices, mask=tf.constant(mask))
        np.testing.assert_allclose(quiet, slow_towers(segments, *CASES[name]), 1e-4, 1e-5)


@pytest.mark.parametrize(("name", "norm"), [("skewed", "batch"), ("by item", "none")])
def test_xla_compiles_the_whole_step_to_the_same_results(name, norm):
    segments = towers(norm=norm)
    groups = alike(segments, dispatch="capacity", capacity=4, norm=norm)
    expected = result(segments, CASES[name])
    for got, wanted in zip(result(groups, CASES[name], compiled=True), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    for got, wanted in zip(groups.weights, segments.weights, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6)


def test_compiled_towers_give_the_same_in_an_uncompiled_step():
    segments = towers(norm="layer")
    compiled = alike(segments, dispatch="capacity", jit_compile=True, norm="layer")
    for name in ("skewed by item", "all padding"):
        expected = result(segments, CASES[name])
        for got, wanted in zip(result(compiled, CASES[name]), expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_lists_of_other_lengths_share_compiled_programs():
    layer = towers(dispatch="capacity", jit_compile=True)
    sizes = []
    grouped = layer._grouped

    def counting(rows, *args):
        sizes.append(rows.shape[0])
        return grouped(rows, *args)

    layer._grouped = counting
    for size in (3, 5, 7, 9):
        layer(*random_case(False, size=size)[:2], training=True)
    # Once for 64 rows of these lengths, and perhaps once more for any number of rows.
    assert len(sizes) <= 2


def test_hidden_outputs_pass_through_groups():
    segments = towers(hidden_output=True)
    groups = alike(segments, hidden_output=True, dispatch="capacity", capacity=4)
    for got, wanted in zip(
        result(groups, CASES["even"]), result(segments, CASES["even"]), strict=True
    ):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_padded_inputs_of_groups_may_hold_anything():
    inputs, indices, mask = random_case(False)
    layer = towers(dispatch="capacity", capacity=4, norm="batch")
    clean = result(layer, (inputs, indices, mask), training=False)
    soiled = np.where(mask[..., None], inputs, np.nan).astype(np.float32)
    for got, wanted in zip(
        result(layer, (soiled, indices, mask), training=False), clean, strict=True
    ):
        np.testing.assert_array_equal(got, wanted)


def test_keras_fits_a_mixture_that_xla_compiles_whole_like_one_by_segments():
    rng = np.random.default_rng(0)
    x = rng.normal(size=[32, 5, 4]).astype(np.float32)
    gate = rng.normal(size=[32, 3]).astype(np.float32)
    mask = np.arange(5) < rng.integers(1, 6, [32, 1])
    y = rng.random([32, 5]).astype(np.float32)

    def losses(compiled, **settings):
        items = tf.keras.Input([5, 4])
        by, above = tf.keras.Input([3]), tf.keras.Input([3])
        valid = tf.keras.Input([5], dtype="bool")
        moe = CategoryMixtureOfExperts(
            6, 2, 4, [8], noisy_gate=False, seed=1, adversarial_weight=0.1, towers=settings
        )
        logits = moe(items, by, above, mask=valid)["logits"]
        model = tf.keras.Model([items, by, above, valid], logits)
        start = np.random.default_rng(5)
        for weight in model.trainable_weights:
            weight.assign(start.normal(size=weight.shape, scale=0.3))
        model.compile(tf.keras.optimizers.SGD(0.1), "mse", jit_compile=compiled)
        # All N - K idle experts are drawn: there is no chance in it.
        return model.fit(
            [x, gate, gate, mask], y, batch_size=8, epochs=2, shuffle=False, verbose=0,
            validation_data=([x, gate, gate, mask], y),
        ).history  # fmt: skip

    segments = losses(False)
    groups = losses(True, dispatch="capacity", capacity=8)
    for name in ("loss", "val_loss", "adversarial"):
        np.testing.assert_allclose(groups[name], segments[name], rtol=1e-4)


def test_bad_settings_are_refused():
    for settings, message in [
        ({"norm": "group"}, "norm must be one of"),
        ({"dispatch": "loop"}, "dispatch must be one of"),
        ({"capacity": 0}, "capacity must be >= 1"),
        ({"jit_compile": True}, "jit_compile needs dispatch='capacity'"),
    ]:
        with pytest.raises(ValueError, match=message):
            ExpertTowers(2, [4], **settings)
