"""Reductions over the replicas of a distribution strategy: means, sums, and seeds per replica."""

from __future__ import annotations

from tfr_moe._compat import tf


def mean_over_items(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    r"""The weighted mean of `values`, exact over all replicas of a strategy.

    $$ \frac{\sum_i w_i v_i}{\sum_i w_i} $$

    Keras divides the loss of each replica by the number of replicas and sums up. With a mean per
    replica, items of replicas with few items would therefore weigh more. Here each replica divides
    its sum by the mean number of items per replica, so that the gradient that Keras sums up is that
    of the mean over all items of the global batch. The value is that mean on each replica: Keras
    reports a loss as the replicas' mean by their numbers of lists, which may differ.

    Values of weight 0 may be NaN. If all weights are 0 the mean is 0.
    """
    values = tf.cast(values, tf.float32)
    weights = tf.broadcast_to(tf.cast(weights, tf.float32), tf.shape(values))
    # where, not a product alone: 0 x NaN is NaN.
    total = tf.reduce_sum(tf.where(weights > 0, values, 0.0) * weights)
    count = tf.reduce_sum(weights)
    replica = tf.distribute.get_replica_context()
    if replica is None or replica.num_replicas_in_sync == 1:
        return tf.math.divide_no_nan(total, count)
    mean = tf.distribute.ReduceOp.MEAN
    share = tf.math.divide_no_nan(total, replica.all_reduce(mean, count))
    return share + tf.stop_gradient(replica.all_reduce(mean, share) - share)


def sum_over_replicas(values: tf.Tensor) -> tf.Tensor:
    """The sum of a tensor over all replicas of a strategy; the tensor itself on one device.

    A loss computed from the sum has the right gradient: it is the same on each replica, Keras
    divides it by the number of replicas, and the gradient of a sum over replicas sums up again.
    """
    replica = tf.distribute.get_replica_context()
    if replica is None or replica.num_replicas_in_sync == 1:
        return values
    return replica.all_reduce(tf.distribute.ReduceOp.SUM, values)


def seed_of_replica(seed: int | None) -> int | None:
    """A seed for random numbers of a training step, different on each replica."""
    replica = tf.distribute.get_replica_context()
    if seed is None or replica is None or replica.num_replicas_in_sync == 1:
        return seed
    number = tf.get_static_value(replica.replica_id_in_sync_group)
    return seed if number is None else seed + 1_000_003 * int(number)
