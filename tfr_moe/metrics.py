"""Keras metrics for `model.compile`, by name: what TensorFlow Ranking lacks, and the way to its own.

All take `y_true` [B, L] with a negative label at padded places and `y_pred` [B, L], and are means over
the lists that the metric can judge: a list with nothing relevant (for the AUC also one with nothing
irrelevant) is left out, but for `prm_precision_k` and `prm_map_k`, which judge all. Ties are broken by
the order in the record, and the same lists in other batches give the same number. They agree with
`tfr_moe.evaluation`, which has float64, the shown positions and the counts, and is what results are
quoted from.

The shown position is not in `y_true` or `y_pred`: `session_auc_k` and `ndcg_k` take the first k items
of the record, which are those shown first, because the pipeline writes lists in shown order.

    model.compile(optimizer, loss, metrics=[metrics.get("session_auc"), metrics.get("ndcg_10")])
"""

from __future__ import annotations

from typing import Any

from tfr_moe import metric_names
from tfr_moe._compat import tf, tfr
from tfr_moe.levels import score_of_levels

_TFR_IMPLEMENTATIONS = {
    "ndcg": tfr.python.metrics_impl.NDCGMetric,
    "mrr": tfr.python.metrics_impl.MRRMetric,
    "map": tfr.python.metrics_impl.MeanAveragePrecisionMetric,
    "precision": tfr.python.metrics_impl.PrecisionMetric,
}
# Keys of TFR's own factory for which there is nothing of ours. They are TFR's in every respect: lists
# with nothing relevant count 0, and ties are broken at random.
_TFR_KEYS = ("arp", "dcg", "hits", "ordered_pair_accuracy", "precision")
_TFR_KEYS_WITH_CUTOFF = ("dcg", "hits")
_LOWER_IS_BETTER = ("arp",)


def _first_items(valid: tf.Tensor, count: int | None) -> tf.Tensor:
    """[B, L] bool: the first `count` valid items of each list."""
    if count is None:
        return valid
    return valid & (tf.cumsum(tf.cast(valid, tf.int32), axis=1) <= count)


def _rank_scores(scores: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
    """[B, L] scores without ties in the order of the given ones, equal ones as in the record.

    TFR shuffles ties; where there are none its result is determined.
    """
    scores = tf.where(valid, scores, scores.dtype.min)
    order = tf.argsort(scores, axis=1, direction="DESCENDING", stable=True)
    ranks = tf.argsort(order, axis=1)
    return -tf.cast(ranks, tf.float32)


class _MeanOverLists(tf.keras.metrics.Mean):
    """A mean of per-list values over the lists that can be judged."""

    def _per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, valid: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """[B] finite values and [B] bool, whether the list is judged."""
        raise NotImplementedError

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Adds lists to the mean.

        Args:
            y_true: [B, L] labels, negative at padded places.
            y_pred: [B, L] scores of any float type, or [B, L, M] levels (`tfr_moe.levels`).
            sample_weight: [B], [B, 1] or [B, L]. An item of weight 0 is not judged; a list counts
                with the mean weight of its judged items.
        """
        labels = tf.cast(tf.convert_to_tensor(y_true), tf.float32)
        scores = tf.cast(score_of_levels(tf.convert_to_tensor(y_pred)), tf.float32)
        weights = tf.ones_like(labels)
        if sample_weight is not None:
            given = tf.cast(tf.convert_to_tensor(sample_weight), tf.float32)
            weights *= given[:, tf.newaxis] if given.shape.rank == 1 else given
        valid = (labels >= 0.0) & (weights > 0.0)
        values, judged = self._per_list(labels, scores, valid)
        count = tf.reduce_sum(tf.cast(valid, tf.float32), axis=1)
        weight = tf.reduce_sum(tf.where(valid, weights, 0.0), axis=1)
        weight = tf.math.divide_no_nan(weight, count)
        return super().update_state(values, sample_weight=tf.where(judged, weight, 0.0))


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class SessionAUC(_MeanOverLists):
    """Mean over lists of the share of (relevant, irrelevant) pairs that the scores order right.

    AUC = sum_{i in P, j in N} ([s_i > s_j] + [s_i = s_j] / 2) / (|P| |N|) within a list, P the items
    with a label above 0 (Adv & HSC-MoE, section IV-A-3). Lists without a pair are left out; the
    result is 0 as long as no list was judged. Time is O(L log L) a list, memory O(B L).

    Args:
        topn: judge only the first so many items of each record (see the module); None judges all.
        name: the name in logs; by default `session_auc` or `session_auc_<topn>`.
        dtype: of the running mean.

    Example:
        >>> auc = SessionAUC()
        >>> _ = auc.update_state([[0.0, 1.0, 0.0, -1.0]], [[3.0, 2.0, 2.0, 9.0]])
        >>> float(auc.result())
        0.25
    """

    def __init__(self, topn: int | None = None, name: str | None = None, dtype: Any = None) -> None:
        super().__init__(name=name or _name("session_auc", topn), dtype=dtype)
        self.topn = topn

    def _per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, valid: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        items = _first_items(valid, self.topn)
        relevant = items & (labels > 0.0)
        irrelevant = items & ~relevant
        num_relevant = tf.reduce_sum(tf.cast(relevant, tf.float32), axis=1)
        num_irrelevant = tf.reduce_sum(tf.cast(irrelevant, tf.float32), axis=1)
        # All others sort to the end; the minimum keeps a score of infinity from counting them.
        rivals = tf.sort(tf.where(irrelevant, scores, float("inf")), axis=1)
        below = tf.cast(tf.searchsorted(rivals, scores, side="left"), tf.float32)
        not_above = tf.cast(tf.searchsorted(rivals, scores, side="right"), tf.float32)
        not_above = tf.minimum(not_above, num_irrelevant[:, tf.newaxis])
        won = tf.reduce_sum(tf.where(relevant, (below + not_above) / 2.0, 0.0), axis=1)
        pairs = num_relevant * num_irrelevant
        return tf.math.divide_no_nan(won, pairs), pairs > 0.0

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        return {**super().get_config(), "topn": self.topn}


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class MeanOverJudgedLists(_MeanOverLists):
    """A ranking metric of TFR, averaged over the lists with something relevant, ties in record order.

    TFR's own Keras metrics count lists with nothing relevant as 0, shuffle ties, and with item
    weights change with the batch size. Here TFR computes each list's value and the rest is a mean.
    Relevance is binary (label above 0) but for `ndcg`, whose gain is 2^y - 1 and discount
    1 / log2(1 + rank). The divisor of `precision` is `ranked` in shorter lists too; that of `map` is
    the number of relevant items in the list.

    Args:
        key: `ndcg`, `mrr`, `map` or `precision`.
        shown: judge only the first so many items of each record (see the module).
        ranked: count only the so many items ranked first; `precision` needs it.
        name: the name in logs; by default the family and the cut-off.
        dtype: of the running mean.

    Raises:
        UserError: for an unknown key, or `precision` without `ranked`.

    Example:
        >>> ndcg = MeanOverJudgedLists("ndcg")
        >>> _ = ndcg.update_state([[0.0, 1.0], [0.0, 0.0]], [[2.0, 1.0], [2.0, 1.0]])
        >>> round(float(ndcg.result()), 4)
        0.6309
    """

    def __init__(
        self,
        key: str,
        shown: int | None = None,
        ranked: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        if key not in _TFR_IMPLEMENTATIONS or (key == "precision" and ranked is None):
            raise metric_names.unknown(key)
        family = "ranked_ndcg" if key == "ndcg" and ranked else key
        super().__init__(name=name or _name(family, shown or ranked), dtype=dtype)
        self.key = key
        self.shown = shown
        self.ranked = ranked
        self._implementation = _TFR_IMPLEMENTATIONS[key](name=key, topn=ranked)

    def _per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, valid: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        items = _first_items(valid, self.shown)
        relevant = items & (labels > 0.0)
        judged = tf.reduce_any(relevant, axis=1)
        if self.key != "ndcg":
            labels = tf.cast(relevant, tf.float32)
        values, _ = self._implementation.compute(labels, _rank_scores(scores, items), mask=items)
        values = tf.squeeze(values, axis=1)
        if self.key == "precision":
            # TFR divides by the length of the list where that is below the cut-off.
            ranked = tf.cast(self.ranked, tf.float32)
            length = tf.reduce_sum(tf.cast(items, tf.float32), axis=1)
            values *= tf.minimum(length, ranked) / ranked
        return values, judged

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        config = {"key": self.key, "shown": self.shown, "ranked": self.ranked}
        return {**super().get_config(), **config}


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class MeanOverAllLists(_MeanOverLists):
    """Precision@k and MAP@k of PRM (Pei et al. 2019, eqs. 11, 12): lists without a click count 0.

    Precision@k is the number of relevant items among the k ranked first, over k; MAP@k adds up, over
    those items, the precision at their ranks, over k. Ties are ranked in record order.

    Args:
        key: `prm_precision` or `prm_map`.
        ranked: k.
        name: the name in logs; by default the key and k.
        dtype: of the running mean.

    Raises:
        UserError: for an unknown key.

    Example:
        >>> metric = MeanOverAllLists("prm_map", 2)
        >>> _ = metric.update_state([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]], [[3.0, 2.0, 1.0]] * 2)
        >>> float(metric.result())
        0.25
    """

    def __init__(self, key: str, ranked: int, name: str | None = None, dtype: Any = None) -> None:
        if key not in metric_names.OVER_ALL_LISTS:
            raise metric_names.unknown(key)
        super().__init__(name=name or _name(key, ranked), dtype=dtype)
        self.key = key
        self.ranked = ranked

    def _per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, valid: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        order = tf.argsort(_rank_scores(scores, valid), axis=1, direction="DESCENDING")
        relevant = tf.cast(valid & (labels > 0.0), tf.float32)
        hits = tf.gather(relevant, order, batch_dims=1)[:, : self.ranked]
        ranks = tf.range(1.0, tf.cast(tf.shape(hits)[1], tf.float32) + 1.0)
        gained = hits if self.key == "prm_precision" else hits * tf.cumsum(hits, axis=1) / ranks
        return tf.reduce_sum(gained, axis=1) / self.ranked, tf.reduce_any(valid, axis=1)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        return {**super().get_config(), "key": self.key, "ranked": self.ranked}


def _name(family: str, cutoff: int | None) -> str:
    return family if cutoff is None else f"{family}_{cutoff}"


def names() -> tuple[str, ...]:
    """Names that `get` takes, with the usual cut-offs; any other cut-off can be put in their place."""
    ours = (*metric_names.DEFAULT_NAMES, "ranked_ndcg_10", "map")
    return (*ours, *(f"{k}_10" if k in _TFR_KEYS_WITH_CUTOFF else k for k in _TFR_KEYS))


def _tfr_key(name: str) -> tuple[str, int | None] | None:
    key, cutoff = metric_names.split(name)
    known = key in _TFR_KEYS and (cutoff is None or key in _TFR_KEYS_WITH_CUTOFF)
    return (key, cutoff) if known else None


def _unknown(name: str) -> Exception:
    forms = (f"{k}[_k]" if k in _TFR_KEYS_WITH_CUTOFF else k for k in _TFR_KEYS)
    return metric_names.unknown(name, tuple(forms))


def get(name: str) -> tf.keras.metrics.Metric:
    """A new Keras metric of that name.

    The families of `tfr_moe.metric_names` are those of this module; other keys of TFR's factory
    (`arp`, `dcg[_k]`, `hits[_k]`, `ordered_pair_accuracy`, `precision` without a cut-off) are TFR's.

    Raises:
        UserError: for a name that is none; the message lists those there are.

    Example:
        >>> get("ndcg_10").name
        'ndcg_10'
    """
    parsed = metric_names.parse(name)
    if parsed is None:
        found = _tfr_key(name)
        if found is None:
            raise _unknown(name)
        key, cutoff = found
        return tfr.keras.metrics.get(key, name=name, topn=cutoff)
    if parsed.family == "session_auc":
        return SessionAUC(topn=parsed.shown, name=name)
    if parsed.family in metric_names.OVER_ALL_LISTS and parsed.ranked is not None:
        return MeanOverAllLists(parsed.family, parsed.ranked, name=name)
    key = "ndcg" if parsed.family == "ranked_ndcg" else parsed.family
    return MeanOverJudgedLists(key, parsed.shown, parsed.ranked, name=name)


def takes_levels(name: str) -> bool:
    """Whether the metric takes several outputs for an item; TFR's own take one."""
    return metric_names.parse(name) is not None


def higher_is_better(name: str) -> bool:
    """Whether a larger value of the metric means a better ranking.

    Raises:
        UserError: for a name that is none.
    """
    if metric_names.parse(name) is None and _tfr_key(name) is None:
        raise _unknown(name)
    return metric_names.split(name)[0] not in _LOWER_IS_BETTER
