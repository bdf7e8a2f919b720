"""Weights of parent and child category, by hand."""

import numpy as np
import pytest

from tfr_moe._compat import tf
from tfr_moe.layers import CategoryHead


def head_of(parents, children, **settings):
    head = CategoryHead(len(parents), len(children), **settings)
    head.build([None, None, 2])
    for table, rows in zip(head.tables, (parents, children), strict=True):
        table.embeddings.assign(np.asarray(rows, np.float32))
    return head


def test_the_weights_of_parent_and_child_add_up():
    head = head_of([[9.0, 9.0], [1.0, 2.0]], [[0.0, 0.0], [10.0, 0.0], [0.0, -3.0]])
    items = tf.constant([[[1.0, 1.0], [2.0, 3.0], [7.0, 7.0]]] * 3)
    mask = tf.constant([[True, True, False]] * 3)
    got = head(items, tf.constant([[1, 1], [1, 2], [0, 0]]), mask=mask)
    # (11, 2), (1, -1), and of an unknown category (9, 9); the last item is padding
    np.testing.assert_array_equal(got, [[13.0, 28.0, 0.0], [0.0, -1.0, 0.0], [18.0, 45.0, 0.0]])


def test_each_output_has_weights():
    head = head_of([[1.0, 2.0, 3.0, 4.0]], [[0.0, 0.0, 0.0, 10.0]], num_outputs=2)
    got = head(tf.constant([[[1.0, 10.0]]]), tf.constant([[0, 0]]))
    # weights of the first number (1, 2), of the second (3, 14)
    np.testing.assert_array_equal(got, [[[31.0, 142.0]]])


def test_a_list_moves_its_parent_and_its_child_by_as_much_and_no_other():
    head = head_of(np.zeros([3, 2]), np.zeros([4, 2]))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(head(tf.constant([[[2.0, 5.0]]]), tf.constant([[1, 3]])))
    parents, children = (
        tf.convert_to_tensor(g).numpy() for g in tape.gradient(loss, head.trainable_variables)
    )
    np.testing.assert_array_equal(parents, [[0, 0], [2, 5], [0, 0]])
    np.testing.assert_array_equal(children, [[0, 0], [0, 0], [0, 0], [2, 5]])


def test_categories_are_pairs_of_numbers():
    with pytest.raises(ValueError, match=r"categories must be integers of shape \(2, 2\)"):
        CategoryHead(3, 4)(tf.ones([2, 5, 2]), tf.constant([1, 1]))
