"""Places of items and their encodings, by hand."""

import math

import numpy as np
import pytest

from tfr_moe._compat import tf
from tfr_moe.layers.positional_encoding import (
    PositionEncoding,
    positions_in_list,
    sinusoidal_encoding,
)


def test_places_count_valid_items_alone():
    mask = tf.constant([[False, True, True, False, True], [True, True, False, False, False]])
    places = positions_in_list(mask).numpy()
    np.testing.assert_array_equal(places[0][[1, 2, 4]], [0, 1, 2])
    np.testing.assert_array_equal(places[1][[0, 1]], [0, 1])


@pytest.mark.parametrize("width", [4, 5])
def test_the_fixed_encoding_by_its_formula(width):
    got = sinusoidal_encoding(tf.constant([[0, 3], [50, 999]]), width).numpy()
    for row, place in zip(got.reshape(4, width), [0, 3, 50, 999], strict=True):
        for column in range(width):
            angle = place / 10000 ** (2 * (column // 2) / width)
            expected = math.cos(angle) if column % 2 else math.sin(angle)
            # an angle of 999 is known to 6e-5 in float32
            assert row[column] == pytest.approx(expected, abs=1e-4)


def test_places_beyond_the_last_share_its_learned_vector():
    layer = PositionEncoding("learned", max_positions=3)
    got = layer(tf.zeros([1, 5, 2]), tf.constant([[0, 1, 2, 3, 900]])).numpy()[0]
    np.testing.assert_array_equal(got[:3], layer.embeddings.numpy())
    np.testing.assert_array_equal(got[3:], [got[2], got[2]])
    assert len(np.unique(got[:3, 0])) == 3


def test_an_unknown_kind_is_rejected():
    with pytest.raises(ValueError, match=r"kind must be fixed or learned. Received: kind='other'"):
        PositionEncoding("other")
