"""Training metrics of gates and experts."""

import math

import numpy as np
import pytest

from tfr_moe._compat import tf
from tfr_moe.layers.gating import ExpertUsage, GateMonitor, TrainingMean


def test_a_training_mean_is_weighted():
    mean = TrainingMean()
    mean.update_state(1.0, 3.0)
    mean.update_state(5.0, 1.0)
    assert float(mean.result()) == (3 * 1.0 + 5.0) / 4


def test_a_training_mean_of_nothing_is_no_number_rather_than_zero():
    mean = TrainingMean()
    assert math.isnan(mean.result())
    mean.update_state(2.0)
    mean.reset_state()
    assert math.isnan(mean.result())


def usage(*batches, num_experts=4, top_k=2):
    metric = ExpertUsage(num_experts, top_k)
    for batch in batches:
        metric.update_state(tf.constant(batch))
    return {name: float(value) for name, value in metric.result().items()}


def test_usage_adds_up_over_batches_before_it_is_judged():
    # Alone each batch leaves two experts idle; together 5, 1, 3, 1 of 10: the busiest two have 8.
    actual = usage([5.0, 0.0, 3.0, 0.0], [0.0, 1.0, 0.0, 1.0])
    assert actual["dead_experts"] == 0
    assert actual["busiest_share"] == pytest.approx(0.8)


def test_experts_below_a_hundredth_of_an_equal_share_are_dead():
    # N = 4: an equal share is 1/4, the threshold 1/400; each case adds up to 400.
    assert usage([396.97, 1.01, 1.01, 1.01])["dead_experts"] == 0
    assert usage([396.99, 0.99, 1.01, 1.01])["dead_experts"] == 1
    assert usage([1.0, 0.0, 0.0, 0.0])["dead_experts"] == 3


def test_balance_gives_k_over_n_and_collapse_gives_one():
    assert usage([2.0, 2.0, 2.0, 2.0])["busiest_share"] == pytest.approx(2 / 4)
    assert usage([1.0, 0.0, 3.0, 0.0])["busiest_share"] == pytest.approx(1.0)


def test_usage_of_nothing_is_no_number():
    metric = ExpertUsage(3, 1)
    metric.update_state(tf.constant([1.0, 0.0, 0.0]))
    metric.reset_state()
    assert np.isnan([float(value) for value in metric.result().values()]).all()


def test_a_gate_monitor_shows_each_gate_by_name_and_passes_the_weights():
    monitor = GateMonitor(num_experts=2, gates=["click", "purchase"])
    # Gate "click" gives all to expert 0; "purchase" is even for item 1, all to expert 1 for item 2.
    weights = tf.constant([[[1.0, 0.0], [0.5, 0.5]], [[1.0, 0.0], [0.0, 1.0]]])
    np.testing.assert_array_equal(monitor(weights, training=True), weights)
    actual = {}
    for metric in monitor.metrics:
        result = metric.result()
        actual.update(result if isinstance(result, dict) else {metric.name: result})
    assert {name: pytest.approx(float(value)) for name, value in actual.items()} == {
        "gate_entropy_click": 0.0,
        "gate_entropy_purchase": np.log(2) / 2,
        "busiest_share_click": 1.0,
        "busiest_share_purchase": 0.75,
        "dead_experts_click": 1.0,
        "dead_experts_purchase": 0.0,
    }


def test_a_gate_monitor_weighs_decisions_by_their_items_and_is_still_outside_training():
    monitor = GateMonitor(num_experts=2)
    monitor(tf.constant([[[0.0, 1.0]]]))
    assert np.isnan(monitor.metrics[0].result())
    weights = tf.constant([[[1.0, 0.0]], [[0.5, 0.5]]])
    monitor(weights, num_items=tf.constant([3.0, 1.0]), training=True)
    assert float(monitor.metrics[0].result()) == pytest.approx(np.log(2) / 4)
    assert float(monitor.metrics[1].result()["busiest_share"]) == pytest.approx(3.5 / 4)


def test_usage_keeps_the_type_that_a_float64_policy_gives_metrics():
    metric = ExpertUsage(3, 1, dtype="float64")
    metric.update_state(tf.constant([1.0, 0.0, 3.0]))
    actual = metric.result()
    assert {value.dtype for value in actual.values()} == {tf.float64}
    assert {name: float(value) for name, value in actual.items()} == {
        "dead_experts": 1.0,
        "busiest_share": 0.75,
    }
