"""Listwise losses: ListNet in two forms, and ListMLE."""

from __future__ import annotations

from typing import Any

from tfr_moe._compat import tf
from tfr_moe.layers.base import Configured
from tfr_moe.layers.outputs import log_softmax
from tfr_moe.losses.base import ListLoss, Lists


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class ListNetLoss(ListLoss):
    r"""Cross-entropy between the softmax of the labels and the softmax of the scores.

    $$ \ell = - \sum_j \text{softmax}(y)_j \log \text{softmax}(s)_j $$

    (Cao et al. 2007; Pobrotyn et al. 2020, https://arxiv.org/abs/2005.10084, section 5.2.4), then
    the mean over lists.

    Example:
        >>> loss = ListNetLoss()
        >>> round(float(loss([[3.0, 3.0, -1.0]], [[0.0, 0.0, 9.0]])), 4)  # log 2
        0.6931
    """

    def per_list(self, lists: Lists) -> tf.Tensor:
        """See `ListLoss`."""
        target = tf.where(lists.valid, tf.exp(log_softmax(lists.labels, lists.valid)), 0.0)
        return -tf.reduce_sum(
            lists.shares * target * log_softmax(lists.logits, lists.valid), axis=1
        )


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class BinaryListNetLoss(ListLoss):
    r"""ListNet for clicks: the clicked items share the target probability equally.

    $$ \ell = - \frac{1}{\sum_k c_k} \sum_j c_j \log \text{softmax}(s)_j $$

    with c_j = 1 for a label above 0, else 0 (Pobrotyn et al. 2020, section 5.2.4: without the
    softmax of the labels, divided by the number of clicks). The mean is over lists with a click.
    For lists with one click it is the loss of PRM (Pei et al. 2019, eq. 9), which does not divide.

    Example:
        >>> loss = BinaryListNetLoss()
        >>> round(float(loss([[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 5.0]])), 4)
        0.6931
    """

    def _clicked(self, lists: Lists) -> tf.Tensor:
        return lists.valid & (lists.labels > 0.0)

    def is_defined(self, lists: Lists) -> tf.Tensor:
        """Lists with a click."""
        return tf.reduce_any(self._clicked(lists), axis=1)

    def per_list(self, lists: Lists) -> tf.Tensor:
        """See `ListLoss`."""
        clicked = tf.cast(self._clicked(lists), tf.float32)
        total = tf.reduce_sum(
            lists.shares * clicked * log_softmax(lists.logits, lists.valid), axis=1
        )
        return -tf.math.divide_no_nan(total, tf.reduce_sum(clicked, axis=1))


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class ListMLELoss(Configured, ListLoss):
    r"""Negative log-likelihood of the order by label under the Plackett-Luce model of the scores.

    $$ \ell = - \sum_{i=1}^{n} \left( s_{y(i)} - \log \sum_{k=i}^{n} e^{s_{y(k)}} \right) $$

    with y(i) the item at position i of the order by descending label (Xia et al. 2008; Pobrotyn et
    al. 2020, section 5.2.4), then the mean over lists. Items of equal label are ordered at random,
    anew at each call.

    Args:
        seed: of the order of equal labels, combined with TensorFlow's global seed.

    Example:
        >>> loss = ListMLELoss()
        >>> round(float(loss([[2.0, 1.0, -1.0]], [[0.0, 0.0, 9.0]])), 4)  # 1/2 x 1
        0.6931
    """

    def __init__(self, seed: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.seed = seed

    def per_list(self, lists: Lists) -> tf.Tensor:
        """See `ListLoss`."""
        shuffled = tf.argsort(tf.random.uniform(tf.shape(lists.labels), seed=self.seed), axis=1)
        labels = tf.gather(tf.where(lists.valid, lists.labels, -1.0), shuffled, batch_dims=1)
        by_label = tf.argsort(labels, axis=1, direction="DESCENDING", stable=True)
        order = tf.gather(shuffled, by_label, batch_dims=1)
        logits = tf.gather(lists.logits, order, batch_dims=1)
        valid = tf.gather(lists.valid, order, batch_dims=1)
        shares = tf.gather(lists.shares, order, batch_dims=1)
        # Padding comes last in the order, below every logit.
        lowest = tf.where(valid, logits, logits.dtype.min / 2.0)
        rest = tf.math.cumulative_logsumexp(lowest, axis=1, reverse=True)
        return tf.reduce_sum(tf.where(valid, shares * (rest - logits), 0.0), axis=1)
