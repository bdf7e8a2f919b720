"""ExpertTowers: equality with a slow loop, and that nothing else is computed."""

import numpy as np
import pytest

from tfr_moe._compat import tf
from tfr_moe.layers.base import seeded_initializer
from tfr_moe.layers.experts import ExpertTowers


def slow_towers(layer, inputs, indices, mask):
    """Item by item, expert by expert, in NumPy."""
    kernels = [k.numpy() for k in layer.kernels]
    biases = [b.numpy() for b in layer.biases]
    batch, size = mask.shape
    out = np.zeros([batch, size, indices.shape[-1]], np.float32)
    for b in range(batch):
        for i in range(size):
            chosen = indices[b] if indices.ndim == 2 else indices[b, i]
            for s, expert in enumerate(chosen):
                if not mask[b, i]:
                    continue
                h = inputs[b, i]
                for depth, (kernel, bias) in enumerate(zip(kernels, biases, strict=True)):
                    h = h @ kernel[expert] + bias[expert]
                    if depth < len(kernels) - 1:
                        h = np.maximum(h, 0)
                out[b, i, s] = h[0]
    return out


def random_case(item_level, seed=0, batch=5, size=7, width=4, experts=6, slots=3):
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=[batch, size, width]).astype(np.float32)
    lead = [batch, size] if item_level else [batch]
    indices = np.argsort(rng.random([*lead, experts]), axis=-1)[..., :slots].astype(np.int32)
    mask = rng.random([batch, size]) < 0.6
    mask[0] = False  # a list of nothing but padding
    return inputs, indices, mask


def layer_with_biases(experts=6, hidden=(8, 5), width=4):
    layer = ExpertTowers(experts, hidden, seed=1)
    layer.build([None, None, width])
    rng = np.random.default_rng(9)
    for bias in layer.biases:
        bias.assign(rng.normal(size=bias.shape))
    return layer


@pytest.mark.parametrize("item_level", [False, True])
@pytest.mark.parametrize("hidden", [(8, 5), (3,), ()])
def test_equals_the_slow_loop(item_level, hidden):
    inputs, indices, mask = random_case(item_level)
    layer = layer_with_biases(hidden=hidden)
    got = layer(inputs, indices, mask=tf.constant(mask))
    # float32 sums in another order
    np.testing.assert_allclose(got, slow_towers(layer, inputs, indices, mask), atol=1e-5)


def test_gradients_equal_those_of_computing_every_expert_on_every_item():
    inputs, indices, mask = random_case(item_level=False)
    layer = layer_with_biases()

    def dense():
        h = tf.constant(inputs)[:, :, tf.newaxis, tf.newaxis, :]
        for depth, (kernel, bias) in enumerate(zip(layer.kernels, layer.biases, strict=True)):
            h = tf.matmul(h, kernel) + bias[:, tf.newaxis, :]
            if depth < len(layer.kernels) - 1:
                h = tf.nn.relu(h)
        every = h[..., 0, 0]  # [B, L, N]
        chosen = tf.gather(every, tf.repeat(indices[:, None], mask.shape[1], 1), batch_dims=2)
        return chosen * tf.cast(mask, tf.float32)[..., tf.newaxis]

    def gradient(compute):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.sin(compute()))
        return tape.gradient(loss, layer.trainable_variables)

    sparse = gradient(lambda: layer(inputs, indices, mask=tf.constant(mask)))
    for got, expected in zip(sparse, gradient(dense), strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-4)


def multiplications(layer, inputs, indices, mask):
    """Multiplications in matrix products of one forward pass, counted from the executed shapes."""
    counted = []
    matmul = tf.matmul

    def counting(a, b, *args, **kwargs):
        counted.append(int(a.shape[0]) * int(np.prod(b.shape)))
        return matmul(a, b, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tf, "matmul", counting)
        layer(inputs, indices, mask=tf.constant(mask))
    return sum(counted)


@pytest.mark.parametrize("item_level", [False, True])
def test_only_selected_experts_on_valid_items_are_computed(item_level):
    inputs, indices, mask = random_case(item_level)
    layer = layer_with_biases()
    one_item_through_one_tower = 4 * 8 + 8 * 5 + 5 * 1
    assert multiplications(layer, inputs, indices, mask) == (
        mask.sum() * indices.shape[-1] * one_item_through_one_tower
    )


def test_unselected_experts_get_no_gradient():
    inputs, _, mask = random_case(item_level=False)
    indices = np.tile(np.array([[0, 2]], np.int32), [5, 1])
    layer = layer_with_biases()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(inputs, indices, mask=tf.constant(mask)))
    kernel = tf.convert_to_tensor(tape.gradient(loss, layer.kernels[0]))
    norms = tf.reduce_sum(tf.abs(kernel), [1, 2]).numpy()
    assert (norms[[0, 2]] > 0).all()
    assert (norms[[1, 3, 4, 5]] == 0).all()


def test_padded_inputs_may_hold_anything():
    inputs, indices, mask = random_case(item_level=False)
    layer = layer_with_biases()
    clean = layer(inputs, indices, mask=tf.constant(mask))
    inputs[~mask] = np.nan
    np.testing.assert_array_equal(layer(inputs, indices, mask=tf.constant(mask)), clean)


def test_a_batch_without_a_valid_item_gives_zeros():
    inputs, indices, mask = random_case(item_level=False)
    got = layer_with_biases()(inputs, indices, mask=tf.zeros_like(mask))
    np.testing.assert_array_equal(got, np.zeros([5, 7, 3]))


def test_dropout_acts_in_training_only():
    inputs, indices, mask = random_case(item_level=False)
    layer = ExpertTowers(6, [64], dropout=0.5, seed=1)
    quiet = [layer(inputs, indices, mask=tf.constant(mask)) for _ in range(2)]
    np.testing.assert_array_equal(quiet[0], quiet[1])
    loud = layer(inputs, indices, mask=tf.constant(mask), training=True)
    assert np.abs(loud - quiet[0]).max() > 0.01


def test_experts_start_unlike_each_other_and_alike_under_a_seed():
    first, second = ExpertTowers(3, [4], seed=5), ExpertTowers(3, [4], seed=5)
    for layer in (first, second):
        layer.build([None, None, 2])
    np.testing.assert_array_equal(first.kernels[0], second.kernels[0])
    assert np.abs(first.kernels[0][0] - first.kernels[0][1]).max() > 0.01


def test_all_experts_equal_choosing_every_one():
    inputs, _, mask = random_case(item_level=False)
    layer = layer_with_biases()
    everyone = np.tile(np.arange(6, dtype=np.int32), [5, 1])
    np.testing.assert_allclose(
        layer(inputs, mask=tf.constant(mask)),
        layer(inputs, everyone, mask=tf.constant(mask)),
        atol=1e-5,
    )
    np.testing.assert_allclose(layer(inputs[:, 0]), layer(inputs)[:, 0], atol=1e-6)


@pytest.mark.parametrize("item_level", [False, True])
def test_hidden_outputs_are_what_the_logits_are_made_of(item_level):
    inputs, indices, mask = random_case(item_level)
    whole = layer_with_biases(hidden=(8, 5))
    hidden = ExpertTowers(6, (8, 5), hidden_output=True)
    hidden.build([None, None, 4])
    for part, source in [(hidden.kernels, whole.kernels), (hidden.biases, whole.biases)]:
        for target, weight in zip(part, source, strict=False):
            target.assign(weight)
    vectors = hidden(inputs, indices, mask=tf.constant(mask))
    assert vectors.shape == (5, 7, 3, 5)
    chosen = indices if item_level else np.repeat(indices[:, None], 7, axis=1)
    kernel, bias = (tf.gather(w, chosen) for w in (whole.kernels[-1], whole.biases[-1]))
    logits = tf.reduce_sum(vectors * kernel[..., 0], axis=-1) + bias[..., 0]
    expected = np.where(mask[..., None], logits, 0.0)
    np.testing.assert_allclose(whole(inputs, indices, mask=tf.constant(mask)), expected, atol=1e-5)
    assert (vectors.numpy()[~mask] == 0).all()


def test_nothing_is_computed_at_index_minus_one():
    inputs, indices, mask = random_case(item_level=False)
    layer = layer_with_biases()
    expected = layer(inputs, indices, mask=tf.constant(mask)).numpy()
    indices[:, 1] = -1
    expected[..., 1] = 0.0
    np.testing.assert_allclose(layer(inputs, indices, mask=tf.constant(mask)), expected, atol=1e-6)
    one_item_through_one_tower = 4 * 8 + 8 * 5 + 5 * 1
    assert multiplications(layer, inputs, indices, mask) == (
        mask.sum() * 2 * one_item_through_one_tower
    )


def test_a_hidden_output_needs_a_hidden_layer():
    with pytest.raises(ValueError, match="hidden_output needs a hidden layer"):
        ExpertTowers(3, [], hidden_output=True)


def test_a_list_alone_gives_what_it_gives_among_others():
    """Another way through the experts is taken for a single list; -1 gives 0 in both."""
    towers = ExpertTowers(6, [8, 5], seed=1)
    items = tf.random.stateless_normal([3, 4, 7], [1, 2])
    chosen = tf.constant([[0, 3], [5, -1], [2, 2]])
    mask = tf.constant([[1, 1, 1, 0], [1, 0, 1, 1], [1, 1, 1, 1]]) > 0
    together = towers(items, chosen, mask=mask)
    for i in range(3):
        alone = towers(items[i : i + 1], chosen[i : i + 1], mask=mask[i : i + 1])
        np.testing.assert_allclose(alone[0], together[i], rtol=1e-5, atol=1e-6)
    assert not np.any(together[1, :, 1])


def test_experts_drop_other_units_of_the_same_rows():
    layer = ExpertTowers(2, [64], dropout=0.5, seed=1, hidden_output=True)
    rows, both = tf.ones([1, 3, 4]), tf.constant([[0, 1]])
    layer.build(rows.shape)
    layer.kernels[0].assign(tf.ones_like(layer.kernels[0]))
    # In one graph, where seeds of operations count from the same start.
    out = tf.function(lambda: layer(rows, both, training=True))()
    assert np.any(out[0, :, 0] != out[0, :, 1])


def test_large_kernels_start_at_the_values_of_their_initializer():
    towers = ExpertTowers(2, hidden_dims=[1024], hidden_output=True, seed=3)
    towers.build([None, None, 600])
    initializer = seeded_initializer(tf.keras.initializers.GlorotUniform(), 3, 2)
    np.testing.assert_array_equal(towers.kernels[0], initializer([2, 600, 1024]))
