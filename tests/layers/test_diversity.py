"""expert_correlation: the squared Pearson correlation of experts of one output, and its invariances."""

import numpy as np
import pytest

from tfr_moe._compat import tf
from tfr_moe.layers.diversity import expert_correlation

RNG = np.random.default_rng(5)
OUTPUTS = RNG.normal(size=[40, 3, 4]).astype(np.float32)


def test_of_single_outputs_it_is_the_mean_squared_pearson_correlation():
    outputs = OUTPUTS[..., :1]
    r = np.corrcoef(outputs[..., 0], rowvar=False)
    expected = np.mean([r[0, 1] ** 2, r[0, 2] ** 2, r[1, 2] ** 2])
    assert float(expert_correlation(outputs)) == pytest.approx(expected, rel=1e-4)


def test_it_equals_the_formula_of_gram_matrices():
    """<K_i, K_j> / (|K_i| |K_j|) with K = E E^T of centred outputs, which is the same number."""
    centred = OUTPUTS - OUTPUTS.mean(axis=0)
    grams = [(centred[:, i] @ centred[:, i].T).ravel() for i in range(3)]
    pairs = [(0, 1), (0, 2), (1, 2)]
    cosines = [
        grams[i] @ grams[j] / np.linalg.norm(grams[i]) / np.linalg.norm(grams[j]) for i, j in pairs
    ]
    assert float(expert_correlation(OUTPUTS)) == pytest.approx(np.mean(cosines), rel=1e-4)


def test_order_rotation_scale_and_shift_of_an_experts_units_mean_nothing():
    rotation, _ = np.linalg.qr(RNG.normal(size=[4, 4]))
    other = OUTPUTS.copy()
    other[:, 1] = 1e6 * other[:, 1] @ rotation + 3.0
    expected = float(expert_correlation(OUTPUTS))
    assert float(expert_correlation(other)) == pytest.approx(expected, rel=1e-2)


def test_copies_are_1_and_constants_0():
    copies = np.repeat(OUTPUTS[:, :1], 3, axis=1)
    assert float(expert_correlation(copies)) == pytest.approx(1.0, rel=1e-5)
    assert float(expert_correlation(np.zeros([9, 3, 2], np.float32))) == 0.0


def test_one_expert_or_no_row_is_0():
    assert float(expert_correlation(OUTPUTS[:, :1])) == 0.0
    assert float(expert_correlation(OUTPUTS[:0])) == 0.0


def test_only_the_first_rows_are_read():
    spoiled = np.concatenate([OUTPUTS, np.full([5, 3, 4], np.nan, np.float32)])
    assert float(expert_correlation(tf.constant(spoiled), max_rows=40)) == pytest.approx(
        float(expert_correlation(OUTPUTS)), rel=1e-6
    )
