"""The encoder against a slow NumPy reference, what padding may do, and the paper's sizes."""

import math

import numpy as np
import pytest

from tfr_moe._compat import tf
from tfr_moe.layers.attention import (
    EncoderBlock,
    SelfAttentionEncoder,
    positions_in_list,
    sinusoidal_encoding,
)


def slow_softmax(values):
    powers = np.exp(values - max(values))
    return powers / powers.sum()


def slow_norm(layer, vector):
    gamma, beta = (w.numpy().astype(np.float64) for w in layer.weights)
    centred = vector - vector.mean()
    return gamma * centred / np.sqrt((centred**2).mean() + 1e-3) + beta


def slow_dense(layer, vector):
    kernel, bias = (w.numpy().astype(np.float64) for w in layer.weights)
    return vector @ kernel + bias


def slow_attention(layer, query, items):
    """One query [n] over items [L, n] -> a vector [n] and weights [H, L]."""
    named = {"/".join(w.name[:-2].split("/")[-2:]): w.numpy().astype(float) for w in layer.weights}

    def project(name, vector, head):
        return vector @ named[f"{name}/kernel"][:, head] + named[f"{name}/bias"][head]

    total, result = named["attention_output/bias"].copy(), []
    for head in range(named["query/bias"].shape[0]):
        projected = project("query", query, head)
        logits = [
            projected @ project("key", item, head) / np.sqrt(len(projected)) for item in items
        ]
        weights = slow_softmax(np.array(logits))
        mixed = weights @ np.array([project("value", item, head) for item in items])
        total += mixed @ named["attention_output/kernel"][head]
        result.append(weights)
    return total, np.array(result)


def slow_block(block, items):
    """Item by item: items [L, n] -> items [L, n] and weights [H, L, L]."""
    result = np.zeros_like(items)
    weights = np.zeros([block.num_heads, len(items), len(items)])
    for i, item in enumerate(items):
        attended, weights[:, i] = slow_attention(block.attention, item, items)
        result[i] = slow_rest(block, item, attended)
    return result, weights


def slow_rest(block, item, attended):
    middle = slow_norm(block.norms[0], item * block.residual + attended)
    hidden = slow_dense(block.output_layer, np.maximum(slow_dense(block.hidden, middle), 0.0))
    return slow_norm(block.norms[1], middle * block.residual + hidden)


def shaken(layer, seed=3):
    """The same layer with no weight at its initial 0 or 1."""
    rng = np.random.default_rng(seed)
    for weight in layer.weights:
        weight.assign_add(0.3 * rng.normal(size=weight.shape).astype(np.float32))
    return layer


def batch(seed=0, shape=(4, 6, 5)):
    rng = np.random.default_rng(seed)
    mask = rng.random(shape[:2]) < 0.7
    mask[:, 2] = True
    return rng.normal(size=shape).astype(np.float32), mask


@pytest.mark.smoke
@pytest.mark.parametrize("settings", [{}, {"head_dim": 3}, {"residual": False}], ids=str)
def test_a_block_equals_the_slow_one_on_the_valid_items_alone(settings):
    inputs, mask = batch(shape=(4, 6, 8))
    block = EncoderBlock(num_heads=2, hidden_dim=7, **settings)
    block(inputs, mask)
    result, weights = shaken(block)(inputs, mask, return_weights=True)
    for b, valid in enumerate(mask):
        expected, expected_weights = slow_block(block, inputs[b][valid].astype(np.float64))
        # float32 against float64
        np.testing.assert_allclose(result[b][valid], expected, rtol=1e-4, atol=1e-5)
        actual = weights[b].numpy()[:, valid][:, :, valid]
        np.testing.assert_allclose(actual, expected_weights, rtol=1e-4, atol=1e-6)


def encoder_of(**settings):
    return SelfAttentionEncoder(
        **{"dim": 6, "num_blocks": 2, "num_heads": 3, "hidden_dim": 9, "seed": 1, **settings}
    )


def test_the_encoder_is_a_projection_and_its_blocks():
    inputs, mask = batch()
    encoder = encoder_of()
    encoder(inputs, mask=mask)
    got, weights = shaken(encoder)(inputs, mask=mask, return_weights=True)
    for b, valid in enumerate(mask):
        hidden = slow_dense(encoder.projection, inputs[b][valid].astype(np.float64))
        for number, block in enumerate(encoder.blocks):
            hidden, expected = slow_block(block, hidden)
            actual = weights[b, number].numpy()[:, valid][:, :, valid]
            np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(got[b][valid], hidden, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(got.numpy()[~mask], 0.0)


def test_no_weight_goes_to_a_padded_item():
    inputs, mask = batch()
    weights = encoder_of()(inputs, mask=mask, return_weights=True)[1].numpy()
    for b, valid in enumerate(mask):
        np.testing.assert_array_equal(weights[b][:, :, valid][..., ~valid], 0.0)
        np.testing.assert_allclose(weights[b][:, :, valid].sum(axis=-1), 1.0, rtol=1e-6)


def test_an_item_is_scored_by_its_company():
    inputs, _ = batch(shape=(1, 6, 5))
    encoder = encoder_of()
    alone, whole = encoder(inputs[:, :1])[0, 0], encoder(inputs)[0, 0]
    assert np.abs(alone - whole).max() > 0.01


def test_queries_keys_and_values_start_from_different_numbers():
    def kernels(seed):
        encoder = encoder_of(seed=seed)
        encoder(tf.ones([1, 2, 6]))
        kernels = [w.numpy() for w in encoder.trainable_weights if "/kernel" in w.name]
        return [k.ravel() for k in kernels if k.size == 36]

    actual = kernels(1)
    assert len(actual) == 1 + 2 * 4  # projection; query, key, value and output of two blocks
    for i, kernel in enumerate(actual):
        assert all(np.abs(kernel - other).max() > 0.01 for other in actual[:i])
    for kernel, again in zip(actual, kernels(1), strict=True):
        np.testing.assert_array_equal(kernel, again)


@pytest.mark.parametrize(("kind", "inside"), [("fixed", True), ("fixed", False), ("learned", True)])
def test_a_positional_encoding_tells_equal_items_apart(kind, inside):
    equal = np.ones([1, 3, 5], np.float32)
    apart = encoder_of(positional_encoding=kind, encode_inputs=inside)(equal)[0].numpy()
    together = encoder_of()(equal)[0].numpy()
    assert np.abs(together - together[0]).max() < 1e-5
    assert np.abs(apart[0] - apart[2]).max() > 1e-3


def test_positions_are_those_among_the_valid_items():
    inputs, _ = batch(shape=(1, 4, 5))
    mask = np.array([[True, False, True, True]])
    encoder = encoder_of(positional_encoding="learned")
    expected = encoder(inputs[:, mask[0]])[0]
    np.testing.assert_allclose(encoder(inputs, mask=mask)[mask], expected, rtol=1e-5, atol=1e-6)
    moved = encoder(inputs[:, [3, 1, 2, 0]], mask=mask[:, [3, 1, 2, 0]])
    assert np.abs(moved[0, 3] - expected[0]).max() > 1e-4


# Table 6 of Pobrotyn et al.: d_fc, N, H, d_h, features and parameters in thousands, where the
# output layer of d_fc + 1 parameters is counted too.
TABLE_6 = [
    (128, 4, 4, 512, 136, 811),
    (256, 4, 4, 512, 136, 2144),
    (144, 4, 2, 512, 136, 949),
    (128, 2, 2, 128, 45, 205),
]


@pytest.mark.parametrize(("dim", "blocks", "heads", "hidden", "features", "thousands"), TABLE_6)
def test_the_encoders_have_the_sizes_of_the_papers_table(
    dim, blocks, heads, hidden, features, thousands
):
    encoder = SelfAttentionEncoder(dim, blocks, heads, hidden_dim=hidden)
    encoder(tf.ones([1, 2, features]))
    assert round((encoder.count_params() + dim + 1) / 1000) == thousands


def test_sizes_that_do_not_fit_are_rejected():
    message = r"num_heads must divide the width 128. Received: num_heads=3"
    with pytest.raises(ValueError, match=message):
        SelfAttentionEncoder(128, num_heads=3)(tf.ones([1, 2, 5]))
    with pytest.raises(ValueError, match="num_heads must divide the width 5"):
        EncoderBlock(num_heads=2)(tf.ones([1, 2, 5]))
    # PRM's heads are as wide as the encoder, eq. 7, and any number of them fits.
    assert SelfAttentionEncoder(8, num_heads=3, head_dim=8)(tf.ones([1, 2, 5])).shape == (1, 2, 8)


def test_places_count_valid_items_alone():
    mask = tf.constant([[False, True, True, False, True], [True, True, False, False, False]])
    positions = positions_in_list(mask).numpy()
    np.testing.assert_array_equal(positions[0][[1, 2, 4]], [0, 1, 2])
    np.testing.assert_array_equal(positions[1][[0, 1]], [0, 1])


@pytest.mark.parametrize("width", [4, 5])
def test_the_fixed_encoding_by_its_formula(width):
    got = sinusoidal_encoding(tf.constant([[0, 3], [50, 999]]), width).numpy()
    for row, position in zip(got.reshape(4, width), [0, 3, 50, 999], strict=True):
        for column in range(width):
            angle = position / 10000 ** (2 * (column // 2) / width)
            expected = math.cos(angle) if column % 2 else math.sin(angle)
            # an angle of 999 is known to 6e-5 in float32
            assert row[column] == pytest.approx(expected, abs=1e-4)


def test_places_beyond_the_last_share_its_learned_vector():
    encoder = encoder_of(num_blocks=0, positional_encoding="learned", max_positions=3)
    got = encoder(tf.zeros([1, 5, 2])).numpy()[0]
    table = encoder.positions.embeddings
    assert table.name.endswith("/positions/embeddings:0")  # its path in checkpoints
    np.testing.assert_array_equal(got[:3], table.numpy())
    np.testing.assert_array_equal(got[3:], [got[2], got[2]])
    assert len(np.unique(got[:3, 0])) == 3


def test_an_unknown_positional_encoding_is_rejected():
    message = (
        r"positional_encoding must be one of \('none', 'fixed', 'learned'\)\. "
        "Received: positional_encoding='other'"
    )
    with pytest.raises(ValueError, match=message):
        SelfAttentionEncoder(positional_encoding="other")
