"""The MMoE paper's synthetic tasks: labels worked by hand, and how related they come out."""

import numpy as np
import pytest

from experiments.mmoe.correlated_tasks import (
    CorrelatedTasks,
    draw_sample,
    draw_weights,
    label_correlation,
    signal,
)
from tfr_moe.errors import UserError


@pytest.mark.parametrize("p", [-1.0, -0.3, 0.0, 0.5, 0.9, 1.0])
def test_weights_have_length_c_and_cosine_p(p):
    w1, w2 = draw_weights(CorrelatedTasks(p, num_features=7, scale=3.0), seed=5)
    assert np.linalg.norm(w1) == pytest.approx(3.0)
    assert np.linalg.norm(w2) == pytest.approx(3.0)
    assert w1 @ w2 / 9 == pytest.approx(p, abs=1e-12)


def test_labels_without_noise_by_hand():
    # x = (1, 2), w1 = (1, 0), w2 = (0, 1); alpha = pi/2, pi and beta = 0, pi/2.
    # y1 = 1 + sin(pi/2) + sin(pi + pi/2) = 1 + 1 - 1,
    # y2 = 2 + sin(pi) + sin(2 pi + pi/2) = 2 + 0 + 1.
    tasks = CorrelatedTasks(0.0, alphas=(np.pi / 2, np.pi), betas=(0.0, np.pi / 2))
    weights = np.array([[1.0, 0.0], [0.0, 1.0]])
    np.testing.assert_allclose(signal(tasks, weights @ [1.0, 2.0]), [1.0, 3.0], atol=1e-12)


def test_a_sample_is_signal_of_its_inputs_plus_noise_of_variance_001():
    tasks = CorrelatedTasks(0.5, num_features=10)
    weights = draw_weights(tasks, seed=1)
    x, y = draw_sample(tasks, weights, 50_000, seed=2)
    noise = y - signal(tasks, x.astype(np.float64) @ weights.T)
    # The standard error of a variance s^2 of n normals is s^2 sqrt(2 / n): 0.00006.
    np.testing.assert_allclose(noise.var(axis=0), [0.01, 0.01], atol=0.0003)
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.02
    assert abs(x.mean()) < 0.01
    assert x.var() == pytest.approx(1, abs=0.01)


def test_correlation_one_means_equal_weights_and_independent_noise():
    tasks = CorrelatedTasks(1.0, num_features=5)
    weights = draw_weights(tasks, seed=0)
    np.testing.assert_array_equal(weights[0], weights[1])
    y = draw_sample(tasks, weights, 20_000, seed=0).y
    assert (y[:, 0] - y[:, 1]).var() == pytest.approx(0.02, rel=0.05)


def test_the_labels_correlation_rises_with_that_of_the_weights():
    measured, exact = [], []
    for p in (-1.0, -0.5, 0.0, 0.25, 0.5, 0.75, 0.9, 1.0):
        tasks = CorrelatedTasks(p, num_features=20)
        y = draw_sample(tasks, draw_weights(tasks, seed=3), 40_000, seed=4).y
        measured.append(np.corrcoef(y.T)[0, 1])
        exact.append(label_correlation(tasks))
    assert measured == sorted(measured)
    # A correlation of n pairs has a standard error of at most 1 / sqrt(n) = 0.005.
    np.testing.assert_allclose(measured, exact, atol=0.02)


def test_the_exact_correlation_equals_a_quadrature():
    tasks = CorrelatedTasks(0.6, scale=0.8, alphas=(1.0, 2.5), betas=(0.3, 1.1))
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    first, second = np.meshgrid(nodes, nodes, indexing="ij")
    mass = np.outer(weights, weights) / weights.sum() ** 2
    y1 = signal(tasks, 0.8 * first)
    y2 = signal(tasks, 0.8 * (0.6 * first + 0.8 * second))
    covariance = (mass * y1 * y2).sum() - (mass * y1).sum() * (mass * y2).sum()
    variance = (mass * y1**2).sum() - (mass * y1).sum() ** 2 + 0.01
    assert label_correlation(tasks) == pytest.approx(covariance / variance, abs=1e-9)


def test_a_seed_gives_the_same_rows_and_another_seed_others():
    tasks = CorrelatedTasks(0.5, num_features=4)
    weights = draw_weights(tasks, seed=1)
    same = draw_sample(tasks, weights, 5, seed=9), draw_sample(tasks, weights, 5, seed=9)
    np.testing.assert_array_equal(same[0].x, same[1].x)
    np.testing.assert_array_equal(same[0].y, same[1].y)
    assert not np.array_equal(same[0].x, draw_sample(tasks, weights, 5, seed=10).x)
    assert not np.array_equal(same[0].x, draw_sample(tasks, weights, 5, seed=9, part=1).x)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"correlation": 1.5}, "correlation must be between -1 and 1, got 1.5"),
        ({"correlation": 0.5, "num_features": 1}, "num_features must be at least 2, got 1"),
        ({"correlation": 0.5, "alphas": (1.0,)}, "must be as many, got 1 and 2"),
        ({"correlation": 0.5, "scale": 0.0}, "scale must be above 0"),
    ],
)
def test_constants_out_of_range_are_refused(wrong, message):
    with pytest.raises(UserError, match=message):
        CorrelatedTasks(**wrong)
