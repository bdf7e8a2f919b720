"""How alike the experts of a mixture are."""

from __future__ import annotations

from typing import Any

from tfr_moe._compat import tf


def expert_correlation(outputs: Any, max_rows: int = 256) -> Any:
    r"""How alike the outputs of experts are, from 0 to 1, as a mean over the pairs of experts.

    $$ CKA(i, j) = \frac{\| E_i^T E_j \|_F^2}{\| E_i^T E_i \|_F \; \| E_j^T E_j \|_F} $$

    with E_i the centred outputs [T, h] of expert i (linear CKA, Kornblith et al. 2019, "Similarity of
    Neural Network Representations Revisited", eq. of section 3). For experts with one output it is the
    squared Pearson correlation. It does not depend on the order, rotation or scale of an expert's
    units, which mean nothing; 1 is two experts that are copies of each other. From few rows it comes
    out too high.

    Args:
        outputs: [T, N, h].
        max_rows: the first so many rows are looked at.

    Returns:
        A float32 scalar; 0 for a single expert, and pairs with a constant output count 0.

    Example:
        >>> line = tf.constant([[[1.0], [-2.0]], [[2.0], [-4.0]], [[4.0], [-8.0]]])
        >>> round(float(expert_correlation(line)), 4)
        1.0
    """
    num_experts, width = outputs.shape[1:]
    if num_experts == 1:
        return tf.constant(0.0)
    rows = tf.cast(outputs[:max_rows], tf.float32)
    # Units of an expert on a common scale of 1, so that no square leaves float32.
    rows -= tf.reduce_mean(rows, axis=0)
    rows = tf.math.divide_no_nan(rows, tf.reduce_max(tf.abs(rows), axis=[0, 2], keepdims=True))
    flat = tf.reshape(rows, [-1, num_experts * width])
    products = tf.reshape(tf.matmul(flat, flat, transpose_a=True), [num_experts, width] * 2)
    norms = tf.reduce_sum(tf.square(products), axis=[1, 3])
    own = tf.sqrt(tf.linalg.diag_part(norms))
    alike = tf.math.divide_no_nan(norms, own[:, tf.newaxis] * own[tf.newaxis])
    pairs = tf.constant(num_experts * (num_experts - 1), tf.float32)
    return (tf.reduce_sum(alike) - tf.linalg.trace(alike)) / pairs
