"""ItemTower is a plain stack of dense layers over the valid items."""

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.layers.experts import ItemTower


def test_logits_worked_out_by_hand():
    # relu([1, 2] [[1, -1], [1, 0]] + [0, 0.5]) = relu([3, -0.5]) = [3, 0]; 3 x 2 + 1 = 7
    tower = ItemTower([2])
    tower(tf.zeros([1, 1, 2]))
    hidden, out = tower.tower.kernels
    hidden.assign([[[1.0, -1.0], [1.0, 0.0]]])
    out.assign([[[2.0], [100.0]]])
    tower.tower.biases[0].assign([[0.0, 0.5]])
    tower.tower.biases[1].assign([[1.0]])
    np.testing.assert_allclose(tower(tf.constant([[[1.0, 2.0]]])), [[7.0]])


def test_padded_items_are_zero_and_all_are_valid_without_a_mask():
    tower = ItemTower([4], seed=1)
    items = tf.random.stateless_normal([2, 3, 5], [1, 2])
    every = tower(items).numpy()
    mask = np.array([[True, False, True], [False, False, False]])
    np.testing.assert_allclose(tower(items, mask=tf.constant(mask)), np.where(mask, every, 0.0))
    assert (every != 0).all()


def test_logits_are_float32_under_a_half_policy():
    tower = ItemTower([4], dtype="mixed_bfloat16")
    assert tower(tf.ones([1, 2, 3])).dtype == tf.float32
    assert tower.tower.compute_dtype == "bfloat16"
    assert {weight.dtype for weight in tower.weights} == {tf.float32}


def test_dropout_acts_in_training_only():
    tower, items = ItemTower([64], dropout=0.5, seed=1), tf.ones([1, 2, 3])
    np.testing.assert_array_equal(tower(items), tower(items))
    assert np.abs(tower(items, training=True) - tower(items)).max() > 1e-3


def test_a_single_tower_is_computed_without_an_order_or_a_branch():
    tower = ItemTower([4])

    @tf.function(autograph=False)
    def score(items, mask):
        return tower(items, mask=mask)

    graph = score.get_concrete_function(tf.ones([2, 3, 5]), tf.ones([2, 3], tf.bool)).graph
    kinds = {operation.type for operation in graph.get_operations()}
    assert {"MatMul", "GatherNd", "ScatterNd"} <= kinds
    assert kinds.isdisjoint({"If", "StatelessIf", "TopKV2", "SplitV"})
