"""Training metrics of gates and experts."""

import math

import numpy as np
import pytest

from tfr_moe._compat import tf
from tfr_moe.layers.gate_metrics import ExpertUsage, GateMonitor, TrainingMean, expert_correlation


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
    found = usage([5.0, 0.0, 3.0, 0.0], [0.0, 1.0, 0.0, 1.0])
    assert found["dead_experts"] == 0
    assert found["busiest_share"] == pytest.approx(0.8)


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
    found = {}
    for metric in monitor.metrics:
        result = metric.result()
        found.update(result if isinstance(result, dict) else {metric.name: result})
    assert {name: pytest.approx(float(value)) for name, value in found.items()} == {
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


RNG = np.random.default_rng(5)
OUTPUTS = RNG.normal(size=[40, 3, 4]).astype(np.float32)


def slow_hsic(x, y):
    """The unbiased estimate, index by index over distinct rows (Song et al. 2012, eq. 4)."""
    n = len(x)
    rows = range(n)
    pairs = [(a, b) for a in rows for b in rows if a != b]
    first = sum(x[a, b] * y[a, b] for a, b in pairs) / (n * (n - 1))
    triples = [(a, b, c) for a, b in pairs for c in rows if c not in (a, b)]
    second = sum(x[a, b] * y[a, c] for a, b, c in triples) / (n * (n - 1) * (n - 2))
    fours = [(a, b, c, d) for a, b, c in triples for d in rows if d not in (a, b, c)]
    third = sum(x[a, b] * y[c, d] for a, b, c, d in fours) / (n * (n - 1) * (n - 2) * (n - 3))
    return first + third - 2 * second


def test_equals_the_definition_as_means_over_distinct_rows():
    outputs = OUTPUTS[:8].astype(np.float64)
    grams = [outputs[:, i] @ outputs[:, i].T for i in range(3)]
    pairs = [(0, 1), (0, 2), (1, 2)]
    expected = np.mean(
        [
            slow_hsic(grams[i], grams[j])
            / np.sqrt(slow_hsic(grams[i], grams[i]) * slow_hsic(grams[j], grams[j]))
            for i, j in pairs
        ]
    )
    assert float(expert_correlation(outputs)) == pytest.approx(expected, rel=1e-3)


def test_of_single_outputs_it_is_near_the_squared_pearson_correlation():
    shared, own = RNG.normal(size=[2, 5000, 1])
    outputs = np.concatenate([shared, 0.6 * shared + 0.8 * own], axis=1)[..., None]
    expected = np.corrcoef(outputs[..., 0], rowvar=False)[0, 1] ** 2
    # The two differ by terms of order 1 / T.
    assert float(expert_correlation(outputs, 5000)) == pytest.approx(expected, abs=2e-3)


def test_unrelated_experts_are_near_0_though_they_have_as_many_units_as_there_are_rows():
    outputs = RNG.normal(size=[256, 4, 256]).astype(np.float32)
    assert abs(float(expert_correlation(outputs))) < 0.02


def test_order_rotation_scale_and_shift_of_an_experts_units_mean_nothing():
    rotation, _ = np.linalg.qr(RNG.normal(size=[4, 4]))
    other = OUTPUTS.copy()
    other[:, 1] = 1e6 * other[:, 1] @ rotation + 3.0
    expected = float(expert_correlation(OUTPUTS))
    assert float(expert_correlation(other)) == pytest.approx(expected, rel=1e-2, abs=1e-4)


def test_copies_are_1_and_constants_0():
    copies = np.repeat(OUTPUTS[:, :1], 3, axis=1)
    assert float(expert_correlation(copies)) == pytest.approx(1.0, rel=1e-5)
    assert float(expert_correlation(np.zeros([9, 3, 2], np.float32))) == 0.0


def test_one_expert_or_too_few_rows_are_0():
    assert float(expert_correlation(OUTPUTS[:, :1])) == 0.0
    for rows in range(4):
        assert float(expert_correlation(OUTPUTS[:rows])) == 0.0


def test_only_the_first_rows_are_read():
    spoiled = np.concatenate([OUTPUTS, np.full([5, 3, 4], np.nan, np.float32)])
    assert float(expert_correlation(tf.constant(spoiled), max_rows=40)) == pytest.approx(
        float(expert_correlation(OUTPUTS)), rel=1e-6
    )
