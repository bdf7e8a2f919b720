"""The bias tower: its equation by hand, whole lists without it in training, padding."""

import numpy as np
import pytest

from tfr_moe._compat import tf
from tfr_moe.layers import PositionBiasTower


def tower(**settings):
    """Two hidden units and positions 1 and 2 with e_1 = (1, -1) and e_2 = (2, 3)."""
    layer = PositionBiasTower(max_positions=2, hidden_dim=2, **settings)
    layer.build([None, None])
    layer.embeddings.assign([[0.0, 5.0], [1.0, -1.0], [2.0, 3.0]])
    layer.output_kernel.assign([[10.0] * layer.num_tasks, [1.0] * layer.num_tasks])
    return layer


def test_a_term_is_that_of_its_position():
    # A missing position, the first, the second, and one beyond the last, which shares it.
    terms = tower()(tf.constant([[0.0, 1.0, 2.0, 7.0]]))
    np.testing.assert_array_equal(terms, [[[5.0], [10.0], [23.0], [23.0]]])


def test_presentation_features_add_to_the_embedding():
    layer = tower()
    layer.project.build([None, None, 1])
    layer.project.kernel.assign([[1.0, 4.0]])
    terms = layer(tf.constant([[1.0, 1.0]]), tf.constant([[[1.0], [-1.0]]]))
    # relu((1, -1) + (1, 4)) = (2, 3), relu((1, -1) - (1, 4)) = (0, 0)
    np.testing.assert_array_equal(terms, [[[23.0], [0.0]]])


def test_padded_items_have_no_term():
    mask = tf.constant([[True, False]])
    terms = tower(num_tasks=2)(tf.constant([[1.0, 2.0]]), mask=mask)
    np.testing.assert_array_equal(terms, [[[10.0, 10.0], [0.0, 0.0]]])


def test_training_drops_whole_lists_and_scales_none():
    layer = tower(dropout=0.25, seed=1)
    positions = tf.tile([[1.0, 2.0]], [4000, 1])
    terms = layer(positions, training=True).numpy()[..., 0]
    dropped = np.all(terms == 0.0, axis=1)
    np.testing.assert_array_equal(terms[~dropped], np.tile([[10.0, 23.0]], [(~dropped).sum(), 1]))
    # Four standard deviations of a share of 4,000 lists.
    assert abs(dropped.mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 4000)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_positions_keep_their_precision_in_half_precision(policy):
    layer = PositionBiasTower(max_positions=4000, hidden_dim=1, dtype=policy)
    layer.build([None, None])
    layer.embeddings.assign(tf.range(4001.0)[:, tf.newaxis] % 2)
    layer.output_kernel.assign([[1.0]])
    terms = layer(tf.constant([[3000.0, 3001.0]]))
    assert terms.dtype == tf.float32
    np.testing.assert_array_equal(terms[..., 0], [[0.0, 1.0]])
