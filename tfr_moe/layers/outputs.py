"""From logits to scores: expected grades, ranks and log-probabilities of a list, scores of tasks.

The ordinal loss trains an output per grade: is the item's grade at least this? Only the loss sees
these outputs; metrics, evaluation, export and serving use their expected grade.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from tfr_moe._compat import tf
from tfr_moe.config.tasks import check_conditions
from tfr_moe.layers.base import ConfiguredLayer

Combination = Literal["probability", "logit"]


def expected_grade(logits: tf.Tensor) -> tf.Tensor:
    r"""The expected grade of items from ordinal outputs [B, L, M]; [B, L] is returned unchanged.

    $$ \text{score}_i = \sum_{m=1}^{M} \sigma(s_{im}) $$

    (Pobrotyn et al. 2020, https://arxiv.org/abs/2005.10084, section 5.2.2).
    """
    if len(logits.shape) == 2:
        return logits
    return tf.reduce_sum(tf.sigmoid(tf.cast(logits, tf.float32)), axis=-1)


def scaled_gains(labels: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
    """[B, L] gains (2^y - 1) / 2^max(y), finite for any label; 0 at padding."""
    labels = tf.where(valid, labels, 0.0)
    top = tf.reduce_max(labels, axis=1, keepdims=True)
    return tf.where(valid, tf.pow(2.0, labels - top) - tf.pow(2.0, -top), 0.0)


def ranks_by_score(scores: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
    """[B, L] float32 ranks from 1 by descending score; ties in input order, padding last."""
    scores = tf.where(valid, scores, float("-inf"))
    order = tf.argsort(scores, axis=1, direction="DESCENDING", stable=True)
    return tf.cast(tf.argsort(order, axis=1), tf.float32) + 1.0


def single_score(model: tf.keras.Model) -> tf.keras.Model:
    """A functional model over the same variables with one score for each item."""
    logits = model.output
    if isinstance(logits, dict) or len(logits.shape) == 2:
        return model
    return tf.keras.Model(model.input, expected_grade(logits), name=model.name)


def log_softmax(values: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
    """[B, L] log softmax over the valid items, 0 at the others."""
    lowest = tf.where(valid, values, values.dtype.min)
    return tf.where(valid, tf.nn.log_softmax(lowest), 0.0)


def joint_logit(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
    r"""The logit of the product of two probabilities that are given as logits.

    $$ \text{logit}(\sigma(a) \sigma(b)) = -\log\left( e^{-a} + e^{-b} + e^{-a-b} \right) $$

    The computation stays in logits, so that rare events keep their gradient.
    """
    return -tf.reduce_logsumexp(tf.stack([-first, -second, -first - second]), axis=0)


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class TaskScores(ConfiguredLayer):
    r"""Names the logits of the tasks and multiplies the probabilities of conditional events.

    The score of an unconditional task is the logit of its tower. If a task is conditioned on
    another, its tower gives the conversion rate from that one, and its score is the logit of the
    joint probability. For a purchase conditioned on a click that is

    $$ p(\text{purchase}) = p(\text{click}) \; p(\text{purchase} \mid \text{click}) $$

    (ESMM: Ma et al. 2018, "Entire Space Multi-Task Model", eq. 1,
    https://arxiv.org/abs/1804.07931). Chains such as click, cart, purchase multiply up.

    Args:
        conditioned_on: per task, in the order of the logits, the task that it is conditioned on or
            None.

    Raises:
        ValueError: for an unknown task or a cycle.

    Example:
        >>> layer = TaskScores({"click": None, "purchase": "click"})
        >>> scores = layer(tf.zeros([1, 2]))
        >>> {name: round(float(tf.sigmoid(score)[0]), 4) for name, score in scores.items()}
        {'click': 0.5, 'purchase': 0.25}
    """

    def __init__(self, conditioned_on: Mapping[str, str | None], **kwargs: Any):
        super().__init__(**kwargs)
        self.keep(locals())
        check_conditions(self.conditioned_on)

    def call(self, logits: tf.Tensor, mask: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        """Logits [..., tasks] -> scores by task, float32 [...], 0 outside of `mask`, bool [...]."""
        towers = tf.unstack(tf.cast(logits, tf.float32), axis=-1)
        by_task = dict(zip(self.conditioned_on, towers, strict=True))
        scores = {name: self._score(name, by_task) for name in by_task}
        if mask is None:
            return scores
        return {name: tf.where(mask, score, 0.0) for name, score in scores.items()}

    def _score(self, name: str, towers: Mapping[str, tf.Tensor]) -> tf.Tensor:
        condition = self.conditioned_on[name]
        if condition is None:
            return towers[name]
        return joint_logit(self._score(condition, towers), towers[name])


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class CombinedScore(ConfiguredLayer):
    r"""Combines the scores of several tasks by fixed weights.

    $$ s = \sum_k w_k \sigma(s_k) \quad \text{or} \quad s = \sum_k w_k s_k $$

    The first form ranks by expected value, for s_k that are logits of probabilities and w_k the
    value of each event. The second is for scores that are not probabilities, such as those of
    listwise losses.

    Args:
        task_weights: w_k by task, >= 0.
        combination: `probability` or `logit`.

    Example:
        >>> layer = CombinedScore({"click": 1.0, "purchase": 10.0})
        >>> float(layer({"click": tf.constant(0.0), "purchase": tf.constant(0.0)}))
        5.5
    """

    def __init__(
        self,
        task_weights: Mapping[str, float],
        combination: Combination = "probability",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if combination not in get_args(Combination):
            raise ValueError(
                f"combination must be probability or logit. Received: combination={combination!r}"
            )
        self.keep(locals())

    def terms(self, scores: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """The summand of each task."""
        terms = {}
        for name, weight in self.task_weights.items():
            score = tf.cast(scores[name], tf.float32)
            terms[name] = weight * (score if self.combination == "logit" else tf.sigmoid(score))
        return terms

    def call(self, scores: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Scores by task, all of one shape -> the combined score of that shape, float32."""
        return sum(self.terms(scores).values())
