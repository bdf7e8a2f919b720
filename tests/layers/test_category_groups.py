"""Groups of categories by name, and the share of lists that count as unknown in training."""

import numpy as np
import pytest

from tfr_moe._compat import tf
from tfr_moe.layers import CategoryGroups

GROUPS = [["toys", "games"], [], ["books"]]


def names(*found):
    return tf.constant([[name] for name in found])


def test_groups_count_from_one_and_all_else_is_zero():
    layer = CategoryGroups(GROUPS)
    found = layer(names("books", "games", "toys", "never", "", "[UNK]"))
    assert found.dtype == tf.int32
    assert found.numpy().tolist() == [3, 1, 1, 0, 0, 0]


def test_without_groups_there_is_one_domain():
    assert CategoryGroups([])(names("toys", "")).numpy().tolist() == [0, 0]


def test_in_training_a_share_of_the_lists_is_of_the_unknown_domain():
    layer = CategoryGroups(GROUPS, unknown_share=0.3, seed=1)
    many = tf.repeat(names("toys", "books"), 5000, axis=0)
    found = layer(many, training=True).numpy()
    # Four standard errors of a share of 0.3 among 10,000.
    assert np.mean(found == 0) == pytest.approx(0.3, abs=4 * np.sqrt(0.3 * 0.7 / 10_000))
    kept = np.where(np.arange(10_000) < 5000, 1, 3)
    np.testing.assert_array_equal(found[found > 0], kept[found > 0])
    np.testing.assert_array_equal(layer(many), kept)
    assert np.any(layer(many, training=True) != found)


def test_what_is_invalid_is_rejected():
    with pytest.raises(ValueError, match="groups must name each category once"):
        CategoryGroups([["toys"], ["books", "toys"]])
    with pytest.raises(ValueError, match=r"unknown_share must be in \[0, 1\)"):
        CategoryGroups(GROUPS, unknown_share=1.0)
