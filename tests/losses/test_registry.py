"""The registry of losses, and the mean over valid items."""

import math

import numpy as np
import pytest

from tests.graphs import outlives_its_function
from tests.test_docs import blocks_of
from tfr_moe import losses
from tfr_moe._compat import tf
from tfr_moe.errors import UserError


def cross_entropy(label, logit):
    p = 1 / (1 + math.exp(-logit))
    return -(label * math.log(p) + (1 - label) * math.log(1 - p))


def test_cross_entropy_is_the_mean_over_valid_items():
    loss = losses.get("sigmoid_cross_entropy")
    labels = tf.constant([[1.0, 0.0, -1.0], [0.0, -1.0, -1.0]])
    logits = tf.constant([[2.0, -1.0, 9.0], [0.5, 9.0, -9.0]])
    expected = (cross_entropy(1, 2.0) + cross_entropy(0, -1.0) + cross_entropy(0, 0.5)) / 3
    np.testing.assert_allclose(loss(labels, logits), expected, rtol=1e-6)


def test_cross_entropy_does_not_depend_on_padding():
    loss = losses.get("sigmoid_cross_entropy")
    narrow = loss([[1.0, 0.0]], [[2.0, -1.0]])
    wide = loss([[1.0, 0.0, -1.0, -1.0]], [[2.0, -1.0, 5.0, 5.0]])
    np.testing.assert_allclose(narrow, wide, rtol=1e-6)


@pytest.mark.parametrize("weights", [[2.0, 1.0], [[2.0], [1.0]], [[2.0, 2.0], [1.0, 1.0]]])
def test_a_list_of_weight_two_counts_as_two_lists(weights):
    loss = losses.get("sigmoid_cross_entropy")
    labels, logits = [[1.0, 0.0], [0.0, 1.0]], [[2.0, -1.0], [0.3, 0.4]]
    weighted = loss(labels, logits, sample_weight=tf.constant(weights))
    repeated = loss([labels[0], *labels], [logits[0], *logits])
    np.testing.assert_allclose(weighted, repeated, rtol=1e-6)


def test_grades_above_one_count_as_purchased():
    loss = losses.get("sigmoid_cross_entropy")
    np.testing.assert_allclose(loss([[3.0, 0.0]], [[1.0, 2.0]]), loss([[1.0, 0.0]], [[1.0, 2.0]]))


def test_nothing_valid_costs_nothing_and_has_a_finite_gradient():
    logits = tf.Variable([[1.0, 2.0]])
    with tf.GradientTape() as tape:
        loss = losses.get("sigmoid_cross_entropy")(tf.constant([[-1.0, -1.0]]), logits)
    assert float(loss) == 0.0
    np.testing.assert_array_equal(tape.gradient(loss, logits), [[0.0, 0.0]])


@pytest.mark.parametrize("name", losses.LOSSES)
def test_no_graph_outlives_its_function(name):
    loss = losses.get(name, max_label=3)
    logits = tf.constant(np.ones([2, 3, 3] if name == "ordinal" else [2, 3], np.float32))
    assert not outlives_its_function(lambda x: loss(tf.ones([2, 3]), x), logits)


def test_names_of_tensorflow_ranking_are_taken_as_they_are():
    loss = losses.get("softmax_loss")
    # -log softmax of the relevant item over (ln 3, 0): 3/4
    np.testing.assert_allclose(loss([[1.0, 0.0]], [[math.log(3), 0.0]]), -math.log(0.75), rtol=1e-6)


def test_an_unknown_name_is_rejected_with_the_known_ones():
    with pytest.raises(UserError, match="loss 'foo' is unknown; allowed: sigmoid_cross_entropy,"):
        losses.get("foo")


LABELS = tf.constant([[1.0, 0.0, -1.0], [0.0, 1.0, 2.0], [-1.0, -1.0, -1.0]])
LOGITS = tf.constant([[2.0, -1.0, 9.0], [0.5, 0.1, -0.3], [1.0, 2.0, 3.0]])
WEIGHTS = tf.constant([[1.0, 2.0, 7.0], [3.0, 1.0, 0.5], [1.0, 1.0, 1.0]])


@pytest.mark.parametrize("kind", [losses.SigmoidCrossEntropyLoss, losses.ListNetLoss])
def test_reductions_agree_with_each_other(kind):
    values = kind(reduction="none")(LABELS, LOGITS, WEIGHTS).numpy()
    by_item = kind is losses.SigmoidCrossEntropyLoss
    assert values.shape == ((3, 3) if by_item else (3,))
    # The weight of a list is the mean of its items' weights; padding weighs nothing.
    total_weight = 3.0 + 4.5 if by_item else 1.5 + 1.5
    np.testing.assert_allclose(kind(reduction="sum")(LABELS, LOGITS, WEIGHTS), values.sum(), 1e-6)
    for mean in ("auto", "sum_over_batch_size"):
        got = kind(reduction=mean)(LABELS, LOGITS, WEIGHTS)
        np.testing.assert_allclose(got, values.sum() / total_weight, rtol=1e-6)
    assert not values[2].any()
    assert kind.from_config(kind(reduction="sum").get_config()).reduction == "sum"


def test_unweighted_values_by_item_are_the_cross_entropies():
    values = losses.SigmoidCrossEntropyLoss(reduction="none")(LABELS[:1], LOGITS[:1])
    expected = [[cross_entropy(1, 2.0), cross_entropy(0, -1.0), 0.0]]
    np.testing.assert_allclose(values, expected, rtol=1e-6)


def test_an_unknown_reduction_is_rejected():
    with pytest.raises(ValueError, match="Invalid Reduction Key: mean"):
        losses.RankNetLoss(reduction="mean")


def test_the_custom_loss_of_the_page_is_a_mean_over_valid_items(repository):
    namespace = {"model": tf.keras.Sequential([tf.keras.layers.Dense(1)])}
    for _, source in blocks_of((repository / "docs" / "losses.md").read_text(encoding="utf-8")):
        exec(source, namespace)
    loss = namespace["SquaredLoss"]()
    # Weights 1 and 3 of the two valid items: (1 x (1 - 3)^2 + 3 x (0 + 1)^2) / 4
    assert float(loss([[1.0, 0.0, -1.0]], [[3.0, -1.0, 9.0]], [[1.0, 3.0, 5.0]])) == 7 / 4


def test_dir_shows_the_public_names_only():
    assert dir(losses) == sorted(losses.__all__)
