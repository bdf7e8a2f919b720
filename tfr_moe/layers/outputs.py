"""From logits to scores: log-probabilities of a list, expected grades, scores of tasks.

The ordinal loss trains an output per grade: is the item's grade at least this? Only the loss sees
these outputs; metrics, evaluation, export and serving use their expected grade.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tfr_moe._compat import tf
from tfr_moe.config.tasks import check_conditions
from tfr_moe.layers.base import Configured, without_autograph

Combination = Literal["probability", "logit"]


def expected_grade(logits: tf.Tensor) -> tf.Tensor:
    r"""The expected grade of items from ordinal outputs [B, L, M]; [B, L] is returned unchanged.

    $$ \text{score}_i = \sum_{m=1}^{M} \sigma(s_{im}) $$

    (Pobrotyn et al. 2020, https://arxiv.org/abs/2005.10084, section 5.2.2).
    """
    if len(logits.shape) == 2:
        return logits
    return tf.reduce_sum(tf.sigmoid(tf.cast(logits, tf.float32)), axis=-1)


def single_score(model: tf.keras.Model) -> tf.keras.Model:
    """A functional model over the same variables with one score for each item and task."""
    outputs = model.output
    if all(len(output.shape) == 2 for output in tf.nest.flatten(outputs)):
        return model
    scores = tf.nest.map_structure(expected_grade, outputs)
    return tf.keras.Model(model.input, scores, name=model.name)


def log_softmax(values: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
    """[B, L] log softmax over the valid items, 0 at the others."""
    lowest = tf.where(valid, values, values.dtype.min)
    return tf.where(valid, tf.nn.log_softmax(lowest), 0.0)


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class ListLogProbability(tf.keras.layers.Layer):
    r"""The logarithm of the softmax over the valid items of each list.

    $$ Score(i) = P(y_i) = \text{softmax}(z)_i $$

    (eq. 8 of PRM, Pei et al. 2019, https://arxiv.org/abs/1904.06813), as log P: the order is the
    same, no probability underflows, and the loss of eq. 9, -sum_i y_i log P(y_i), is the softmax
    loss of these scores as of the logits z.

    Example:
        >>> scores = ListLogProbability()(
        ...     tf.constant([[1.0, 1.0, 9.0]]), mask=tf.constant([[True, True, False]])
        ... )
        >>> tf.exp(scores).numpy().round(3).tolist()
        [[0.5, 0.5, 1.0]]
    """

    @without_autograph
    def call(self, logits: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor:
        """Logits [B, L] and mask [B, L] -> float32 log P [B, L], 0 at padded items."""
        logits = tf.cast(logits, tf.float32)
        return log_softmax(logits, tf.ones_like(logits, tf.bool) if mask is None else mask)


def joint_logit(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
    r"""The logit of the product of two probabilities that are given as logits.

    $$ \text{logit}(\sigma(a) \sigma(b)) = -\log\left( e^{-a} + e^{-b} + e^{-a-b} \right) $$

    The computation stays in logits, so that rare events keep their gradient.
    """
    return -tf.reduce_logsumexp(tf.stack([-first, -second, -first - second]), axis=0)


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class TaskScores(Configured, tf.keras.layers.Layer):
    r"""Names the logits of the tasks and multiplies the probabilities of conditional events.

    The score of an unconditional task is the logit of its tower. If a task is conditioned on
    another, its tower gives the conversion rate from that one, and its score is the logit of the
    joint probability. For a purchase conditioned on a click that is

    $$ p(\text{purchase}) = p(\text{click}) \; p(\text{purchase} \mid \text{click}) $$

    (ESMM: Ma et al. 2018, "Entire Space Multi-Task Model", eq. 1,
    https://arxiv.org/abs/1804.07931). The label of the joint event is known for every impression,
    so that the conversion rate is trained on whole lists and not on clicked items alone. Chains
    such as click, cart, purchase multiply up.

    With several outputs, `ordinal_tasks` keep all of them and the other tasks use the first.

    Args:
        conditioned_on: per task, in the order of the logits, the task that it is conditioned on or
            None.
        ordinal_tasks: tasks with one output per grade (`tfr_moe.layers.outputs`).

    Raises:
        ValueError: for an unknown task, a cycle, or an ordinal task with a condition on either
            side.

    Example:
        >>> layer = TaskScores({"click": None, "purchase": "click"})
        >>> scores = layer(tf.zeros([1, 2]))
        >>> {name: round(float(tf.sigmoid(score)[0]), 4) for name, score in scores.items()}
        {'click': 0.5, 'purchase': 0.25}
    """

    def __init__(
        self,
        conditioned_on: Mapping[str, str | None],
        ordinal_tasks: Sequence[str] = (),
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.keep(locals())
        check_conditions(self.conditioned_on, self.ordinal_tasks)

    def call(self, logits: tf.Tensor, mask: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        """Logits [..., tasks], with `ordinal_tasks` [..., tasks, M] -> scores by task.

        Scores are float32 [...], or [..., M] for `ordinal_tasks`, and 0 outside of `mask`, bool
        [...].
        """
        logits = tf.cast(logits, tf.float32)
        if not self.ordinal_tasks:
            logits = logits[..., tf.newaxis]
        outputs = dict(zip(self.conditioned_on, tf.unstack(logits, axis=-2), strict=True))
        towers = {name: output[..., 0] for name, output in outputs.items()}
        scores = {
            name: outputs[name] if name in self.ordinal_tasks else self._score(name, towers)
            for name in outputs
        }
        if mask is None:
            return scores
        return {
            name: tf.where(
                mask[..., tf.newaxis] if name in self.ordinal_tasks else mask, score, 0.0
            )
            for name, score in scores.items()
        }

    def _score(self, name: str, towers: Mapping[str, tf.Tensor]) -> tf.Tensor:
        condition = self.conditioned_on[name]
        if condition is None:
            return towers[name]
        return joint_logit(self._score(condition, towers), towers[name])


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class CombinedScore(tf.keras.layers.Layer):
    r"""Combines the scores of several tasks by fixed weights.

    $$ s = \sum_k w_k \sigma(s_k) \quad \text{or} \quad s = \sum_k w_k s_k $$

    The first form ranks by expected value, for s_k that are logits of probabilities and w_k the
    value of each event. The second is for scores that are not probabilities, such as those of
    listwise losses. An expected grade (`tfr_moe.layers.outputs`) enters both forms unchanged.

    Args:
        weights: w_k by task, >= 0.
        combination: `probability` or `logit`.
        ordinal_tasks: tasks whose score is an expected grade.

    Example:
        >>> layer = CombinedScore({"click": 1.0, "purchase": 10.0})
        >>> float(layer({"click": tf.constant(0.0), "purchase": tf.constant(0.0)}))
        5.5
    """

    def __init__(
        self,
        weights: Mapping[str, float],
        combination: Combination = "probability",
        ordinal_tasks: Sequence[str] = (),
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if combination not in ("probability", "logit"):
            raise ValueError(
                f"combination must be probability or logit. Received: combination={combination!r}"
            )
        self.weights_of_tasks = dict(weights)
        self.combination = combination
        self.ordinal_tasks = tuple(ordinal_tasks)

    def terms(self, scores: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """The summand of each task."""
        terms = {}
        for name, weight in self.weights_of_tasks.items():
            score = tf.cast(scores[name], tf.float32)
            unchanged = self.combination == "logit" or name in self.ordinal_tasks
            terms[name] = weight * (score if unchanged else tf.sigmoid(score))
        return terms

    @without_autograph
    def call(self, scores: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Scores by task, all of one shape -> the combined score of that shape, float32."""
        return sum(self.terms(scores).values())

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "weights": dict(self.weights_of_tasks),
            "combination": self.combination,
            "ordinal_tasks": list(self.ordinal_tasks),
        }
