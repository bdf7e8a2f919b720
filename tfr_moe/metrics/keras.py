"""Keras metrics of ranked lists for `model.compile`.

All take `y_true` [B, L], with a negative label for padding, and `y_pred` [B, L], and average over
the lists on which the metric is defined: lists without a relevant item (for the AUC also without an
irrelevant one) are skipped, but not by the PRM metrics, which are defined on all lists. Ties are
ranked in record order; batching does not change the result, and the result is NaN until the first
list. `tfr_moe.evaluation` computes the same metrics per list in float64; quote results from there.

`y_true` and `y_pred` have no display positions: `shown=k` takes the first k items of the record,
which are those shown first, because the data pipeline writes lists in display order.

    model.compile(optimizer, loss, metrics=[SessionAUC(), NDCG(k=10)])
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tfr_moe._compat import tf, tfr
from tfr_moe.errors import UserError
from tfr_moe.layers.checks import check_scores, dense, item_weights
from tfr_moe.layers.gating import TrainingMean
from tfr_moe.layers.outputs import expected_grade, ranks_by_score, scaled_gains
from tfr_moe.metrics import naming


class _MeanOverLists(TrainingMean):
    """Averages per-list values over the lists on which they are defined."""

    _family: str
    _arguments: tuple[str, ...] = ("k",)
    """Arguments of the constructor other than name and dtype."""

    def __init__(
        self, k: int | None, name: str | None, dtype: Any, shown: int | None = None
    ) -> None:
        for argument, value in (("k", k), ("shown", shown)):
            if value is not None and value < 1:
                raise ValueError(f"{argument} must be >= 1 or None. Received: {argument}={value}")
        cut = f"_shown_{shown}" if shown is not None else "" if k is None else f"_{k}"
        super().__init__(name=name or f"{self._family}{cut}", dtype=dtype)
        self.k, self.shown = k, shown

    @classmethod
    def _per_list(
        cls, k: int | None, labels: tf.Tensor, scores: tf.Tensor, items: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """[B] finite values, and [B] bool: whether the metric is defined on the list.

        `items`, bool [B, L], are those to evaluate.
        """
        raise NotImplementedError

    @classmethod
    @functools.cache
    def _traced(cls, k: int | None, shown: int | None) -> Callable[..., Any]:
        """Labels, scores and weights [B, L] -> values and weights of the lists [B].

        One graph for all models of a process: metrics are a quarter of the operations of a step of
        `dnn`.
        """

        def of_lists(
            labels: tf.Tensor, scores: tf.Tensor, weights: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor]:
            items = valid = (labels >= 0.0) & (weights > 0.0)
            if shown is not None:
                items &= tf.cumsum(tf.cast(valid, tf.int32), axis=1) <= shown
            values, defined = cls._per_list(k, labels, scores, items)
            count = tf.reduce_sum(tf.cast(valid, tf.float32), axis=1)
            weight = tf.reduce_sum(tf.where(valid, weights, 0.0), axis=1)
            weight = tf.math.divide_no_nan(weight, count)
            return values, tf.where(defined, weight, 0.0)

        return tf.function(of_lists, [tf.TensorSpec([None, None])] * 3, autograph=False)

    def update_state(  # type: ignore[override]
        self, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> None:
        """Adds lists: labels [B, L], negative for padding, and scores [B, L] of any float type.

        Scores may be ordinal outputs [B, L, M]. Weights are [B], [B, 1] or [B, L]: items of weight
        0 are ignored; a list has the mean weight of its other items.
        """
        labels, outputs = tf.cast(dense(y_true), tf.float32), dense(y_pred)
        check_scores(labels, outputs)
        scores = tf.cast(expected_grade(outputs), tf.float32)
        weights = item_weights(sample_weight, labels)
        super().update_state(*self._traced(self.k, self.shown)(labels, scores, weights))

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        return {
            **super().get_config(),
            **{name: getattr(self, name) for name in self._arguments},
        }


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class SessionAUC(_MeanOverLists):
    """Mean over lists of the share of (relevant, irrelevant) pairs in the right order.

    AUC = sum_{i in P, j in N} ([s_i > s_j] + [s_i = s_j] / 2) / (|P| |N|) within a list, P the
    items with a label above 0 ([Adv & HSC-MoE](https://arxiv.org/abs/2007.12349), section IV-A-3).
    Lists without a pair are skipped. O(L log L) time per list, O(B L) memory.

    Args:
        name: name in the logs; default `session_auc` or `session_auc_shown_<shown>`.
        shown: number of first items of each record to evaluate; None for all.

    Example:
        >>> auc = SessionAUC()
        >>> _ = auc.update_state([[0.0, 1.0, 0.0, -1.0]], [[3.0, 2.0, 2.0, 9.0]])
        >>> float(auc.result())
        0.25
    """

    _arguments = ("shown",)
    _family = "session_auc"

    def __init__(
        self, name: str | None = None, dtype: Any = None, *, shown: int | None = None
    ) -> None:
        super().__init__(None, name, dtype, shown)

    @classmethod
    def _per_list(
        cls, k: int | None, labels: tf.Tensor, scores: tf.Tensor, items: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        relevant = items & (labels > 0.0)
        irrelevant = items & ~relevant
        num_relevant = tf.reduce_sum(tf.cast(relevant, tf.float32), axis=1)
        num_irrelevant = tf.reduce_sum(tf.cast(irrelevant, tf.float32), axis=1)
        # All others sort to the end; the minimum keeps a score of infinity from counting them.
        rivals = tf.sort(tf.where(irrelevant, scores, float("inf")), axis=1)
        below = tf.cast(tf.searchsorted(rivals, scores, side="left"), tf.float32)
        not_above = tf.cast(tf.searchsorted(rivals, scores, side="right"), tf.float32)
        not_above = tf.minimum(not_above, tf.expand_dims(num_irrelevant, axis=1))
        won = tf.reduce_sum(tf.where(relevant, (below + not_above) / 2.0, 0.0), axis=1)
        pairs = num_relevant * num_irrelevant
        return tf.math.divide_no_nan(won, pairs), pairs > 0.0


class _RankedMetric(_MeanOverLists):
    """A metric of the k items ranked first, computed per list by TFR with ties in record order.

    TFR's own Keras metrics count lists without a relevant item as 0, shuffle ties, and with item
    weights change with the batch size.
    """

    _tfr_class: Callable[..., Any]

    @classmethod
    def _gains(cls, labels: tf.Tensor, relevant: tf.Tensor, items: tf.Tensor) -> tf.Tensor:
        """The labels for TFR's metric, [B, L]."""
        return tf.cast(relevant, tf.float32)

    @classmethod
    def _per_list(
        cls, k: int | None, labels: tf.Tensor, scores: tf.Tensor, items: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        relevant = items & (labels > 0.0)
        labels = cls._gains(labels, relevant, items)
        metric = cls._tfr_class(name=cls._family, topn=k)
        # TFR shuffles equal scores; negated ranks are all different.
        values, _ = metric.compute(labels, -ranks_by_score(scores, items), mask=items)
        return tf.squeeze(values, axis=1), tf.reduce_any(relevant, axis=1)


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class NDCG(_RankedMetric):
    """Normalised discounted cumulative gain of the k items ranked first.

    DCG = sum_{r <= k} (2^{y_r} - 1) / log2(1 + r), divided by that of the best order of the list.

    Args:
        k: cutoff; None for the whole list.
        name: name in the logs; default `ndcg_<k>`, `ndcg` or `ndcg_shown_<shown>`, likewise for the
            other metrics.
        shown: number of first items of each record to evaluate; None for all.

    Example:
        >>> ndcg = NDCG(k=10)
        >>> _ = ndcg.update_state([[0.0, 1.0], [0.0, 0.0]], [[2.0, 1.0], [2.0, 1.0]])
        >>> round(float(ndcg.result()), 4)
        0.6309
    """

    _arguments = ("k", "shown")
    _family = "ndcg"
    _tfr_class = functools.partial(tfr.python.metrics_impl.NDCGMetric, gain_fn=tf.identity)

    @classmethod
    def _gains(cls, labels: tf.Tensor, relevant: tf.Tensor, items: tf.Tensor) -> tf.Tensor:
        return scaled_gains(labels, items)

    def __init__(
        self,
        k: int | None = 10,
        name: str | None = None,
        dtype: Any = None,
        *,
        shown: int | None = None,
    ) -> None:
        super().__init__(k, name, dtype, shown)


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class MRR(_RankedMetric):
    """Reciprocal rank of the first relevant item, 0 if it is not among the k ranked first.

    The cutoff `k` is None for the whole list.
    """

    _family = "mrr"
    _tfr_class = tfr.python.metrics_impl.MRRMetric

    def __init__(self, k: int | None = None, name: str | None = None, dtype: Any = None) -> None:
        super().__init__(k, name, dtype)


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class MAP(_RankedMetric):
    """Mean over the relevant items of a list of the precision at their ranks, 0 beyond rank k.

    The cutoff `k` is None for the whole list.
    """

    _family = "map"
    _tfr_class = tfr.python.metrics_impl.MeanAveragePrecisionMetric

    def __init__(self, k: int | None = 10, name: str | None = None, dtype: Any = None) -> None:
        super().__init__(k, name, dtype)


class _OverCutoff(_MeanOverLists):
    """A sum over the relevant items among the k ranked first, over k, in shorter lists too."""

    def __init__(self, k: int, name: str | None = None, dtype: Any = None) -> None:
        super().__init__(k, name, dtype)

    @classmethod
    def _gains(cls, hits: tf.Tensor) -> tf.Tensor:
        return hits

    @classmethod
    def _per_list(
        cls, k: int | None, labels: tf.Tensor, scores: tf.Tensor, items: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        relevant = items & (labels > 0.0)
        order = tf.argsort(ranks_by_score(scores, items), axis=1)
        hits = tf.gather(tf.cast(relevant, tf.float32), order, batch_dims=1)[:, :k]
        needed = items if cls._family in naming.OVER_ALL_LISTS else relevant
        return tf.reduce_sum(cls._gains(hits), axis=1) / k, tf.reduce_any(needed, axis=1)


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class Precision(_OverCutoff):
    """Number of relevant items among the k ranked first, over k, in shorter lists too."""

    _family = "precision"

    def __init__(self, k: int = 5, name: str | None = None, dtype: Any = None) -> None:
        super().__init__(k, name, dtype)


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class PRMPrecision(_OverCutoff):
    """Precision@k of PRM (Pei et al. 2019, https://arxiv.org/abs/1904.06813, eq. 11).

    It is 0 in lists without a relevant item.
    """

    _family = "prm_precision"


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class PRMMAP(_OverCutoff):
    """MAP@k of PRM (eq. 12), divided by k: 0 in lists without a relevant item.

    Example:
        >>> metric = PRMMAP(2)
        >>> _ = metric.update_state([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]], [[3.0, 2.0, 1.0]] * 2)
        >>> float(metric.result())
        0.25
    """

    _family = "prm_map"

    @classmethod
    def _gains(cls, hits: tf.Tensor) -> tf.Tensor:
        ranks = tf.range(1.0, tf.cast(tf.shape(hits)[1], tf.float32) + 1.0)
        return hits * tf.cumsum(hits, axis=1) / ranks


_CLASSES: dict[str, Any] = {
    kind._family: kind for kind in (NDCG, MRR, MAP, Precision, PRMPrecision, PRMMAP)
}


def names() -> tuple[str, ...]:
    """Names that `get` takes, with typical cutoffs; any other cutoff is allowed."""
    return (*naming.DEFAULT_NAMES, "session_auc_shown_10", "ndcg_shown_10", "map")


def get(name: str) -> tf.keras.metrics.Metric:
    """Makes the Keras metric of a name; the families of `tfr_moe.metrics.naming` are the classes.

    Raises:
        UserError: for an unknown name, with the allowed ones.

    Example:
        >>> get("ndcg_10").name
        'ndcg_10'
    """
    parsed = naming.parse(name)
    if parsed.family == "ips_dcg":
        raise UserError(f"metric {name!r} is for evaluation: training metrics are not weighted")
    if parsed.family == "session_auc":
        return SessionAUC(name, shown=parsed.shown)
    if parsed.shown is not None:
        return NDCG(None, name, shown=parsed.shown)
    return _CLASSES[parsed.family](parsed.ranked, name)
