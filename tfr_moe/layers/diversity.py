"""How alike the experts of a mixture are."""

from __future__ import annotations

from typing import Any

from tfr_moe._compat import tf

MAX_ROWS = 256


def expert_correlation(outputs: Any, max_rows: int = MAX_ROWS) -> Any:
    r"""How alike the outputs of experts are, as a mean over the pairs of experts.

    $$ CKA(i, j) = \frac{HSIC(K_i, K_j)}{\sqrt{HSIC(K_i, K_i) \; HSIC(K_j, K_j)}}, \qquad
       K_i = E_i E_i^T $$

    with E_i [T, h] the outputs of expert i over T items (Kornblith et al. 2019, "Similarity of Neural
    Network Representations Revisited") and the unbiased estimate of HSIC (Song et al. 2012, eq. 5)

    $$ HSIC(K, L) \propto \text{tr}(KL) + \frac{(1^T K 1)(1^T L 1)}{(T-1)(T-2)}
       - \frac{2}{T-2} 1^T K L 1, \qquad K_{tt} = L_{tt} = 0 $$

    1 is experts that say the same, 0 (give or take chance) experts that have nothing to do with each
    other. For experts with one output it estimates the squared Pearson correlation. The order, rotation,
    scale and shift of an expert's units, which mean nothing, do not change it.

    Args:
        outputs: [T, N, h].
        max_rows: the first so many rows are looked at.

    Returns:
        A float32 scalar; 0 for a single expert and for fewer than 4 rows, and pairs with a constant
        output count 0.

    Example:
        >>> column = tf.random.normal([100, 1, 4], seed=1)
        >>> copies = tf.concat([column, -2.0 * column + 1.0], axis=1)
        >>> round(float(expert_correlation(copies)), 3)
        1.0
    """
    num_experts = outputs.shape[1]
    if num_experts == 1:
        return tf.constant(0.0)
    centred = tf.transpose(tf.cast(outputs[:max_rows], tf.float32), [1, 0, 2])
    centred -= tf.reduce_mean(centred, axis=1, keepdims=True)
    # On a common scale of 1, so that no product leaves float32.
    centred = tf.math.divide_no_nan(
        centred, tf.reduce_max(tf.abs(centred), axis=[1, 2], keepdims=True)
    )
    grams = tf.matmul(centred, centred, transpose_b=True)  # [N, T, T]
    grams *= 1 - tf.eye(tf.shape(grams)[1])
    sums = tf.reduce_sum(grams, axis=2)
    totals = tf.reduce_sum(sums, axis=1)
    num_rows = tf.shape(grams)[1]
    n = tf.cast(tf.maximum(num_rows, 4), tf.float32)
    flat = tf.reshape(grams, [num_experts, num_rows * num_rows])
    hsic = (
        tf.matmul(flat, flat, transpose_b=True)
        + totals[:, tf.newaxis] * totals / ((n - 1) * (n - 2))
        - 2 / (n - 2) * tf.matmul(sums, sums, transpose_b=True)
    )
    own = tf.sqrt(tf.maximum(tf.linalg.diag_part(hsic), 0.0))
    alike = tf.math.divide_no_nan(hsic, own[:, tf.newaxis] * own)
    pairs = tf.cast(num_experts * (num_experts - 1), tf.float32)
    mean = (tf.reduce_sum(alike) - tf.linalg.trace(alike)) / pairs
    return tf.where(num_rows >= 4, mean, 0.0)
