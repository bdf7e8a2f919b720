"""From the towers' logits to the score of each task, and to one score for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tfr_moe._compat import tf
from tfr_moe.tasks import check_given

Combination = Literal["probability", "logit"]


def joint_logit(first: Any, second: Any) -> Any:
    r"""The logit of the product of two probabilities that are given as logits.

    $$ \text{logit}(\sigma(a) \sigma(b)) = -\log\left( e^{-a} + e^{-b} + e^{-a-b} \right) $$

    It is computed without leaving the logits, so that rare events keep their gradient.

    Example:
        >>> round(float(tf.sigmoid(joint_logit(tf.constant(0.0), tf.constant(0.0)))), 4)
        0.25
    """
    return -tf.reduce_logsumexp(tf.stack([-first, -second, -first - second]), axis=0)


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class TaskScores(tf.keras.layers.Layer):
    r"""Names the tasks' logits, and multiplies out events that presuppose others.

    A task with nothing `given` has its tower's logit. For a task that presupposes another, the tower
    stands for the conversion from that one, and the score for both together: with purchase given click

    $$ p(\text{purchase}) = p(\text{click}) \; p(\text{purchase} \mid \text{click}) $$

    as a logit (ESMM: Ma et al. 2018, "Entire Space Multi-Task Model", eq. 1, pCTCVR = pCTR x pCVR). Since
    its label is known for every item that was shown, the conversion learns from whole lists and not from
    clicked items alone. Chains such as click, cart, purchase multiply up.

    With several outputs a task that `levels` names keeps all of them, and any other has the first.

    Args:
        given: per task, in the order of the logits, the task that it presupposes or None.
        levels: tasks that have an output for each grade (`tfr_moe.levels`).

    Raises:
        ValueError: for a task that is none or a circle, and for grades that presuppose something or
            are presupposed.

    Example:
        >>> layer = TaskScores({"click": None, "purchase": "click"})
        >>> scores = layer(tf.zeros([1, 2]))
        >>> {name: round(float(tf.sigmoid(score)[0]), 4) for name, score in scores.items()}
        {'click': 0.5, 'purchase': 0.25}
    """

    def __init__(self, given: Mapping[str, str | None], levels: Sequence[str] = (), **kwargs: Any):
        super().__init__(**kwargs)
        self.given = dict(given)
        self.levels = tuple(levels)
        check_given(self.given, self.levels)

    def call(self, logits: Any, mask: Any = None) -> dict[str, Any]:
        """Names the towers' outputs.

        Args:
            logits: [..., tasks], or [..., tasks, M] if there are `levels`.
            mask: bool [...]; scores are 0 where it is False.

        Returns:
            Scores by task, float32 [...], or [..., M] for those that `levels` names.
        """
        logits = tf.cast(logits, tf.float32)
        if not self.levels:
            logits = logits[..., tf.newaxis]
        outputs = dict(zip(self.given, tf.unstack(logits, axis=-2), strict=True))
        towers = {name: output[..., 0] for name, output in outputs.items()}
        scores = {
            name: outputs[name] if name in self.levels else self._score(name, towers)
            for name in outputs
        }
        if mask is None:
            return scores
        return {
            name: tf.where(mask[..., tf.newaxis] if name in self.levels else mask, score, 0.0)
            for name, score in scores.items()
        }

    def _score(self, name: str, towers: Mapping[str, Any]) -> Any:
        before = self.given[name]
        if before is None:
            return towers[name]
        return joint_logit(self._score(before, towers), towers[name])

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "given": dict(self.given), "levels": list(self.levels)}


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class CombinedScore(tf.keras.layers.Layer):
    r"""One score from those of several tasks, by stated weights.

    $$ s = \sum_k w_k \sigma(s_k) \quad \text{or} \quad s = \sum_k w_k s_k $$

    The first ranks by expected value, where s_k are logits of probabilities and w_k what each event is
    worth. The second is for scores that are no logits of anything, as those of listwise losses. An
    expected grade (`tfr_moe.levels`) is taken as it is in both.

    Args:
        weights: w_k by task, >= 0.
        combination: `probability` or `logit`.
        grades: tasks whose score is an expected grade.

    Example:
        >>> layer = CombinedScore({"click": 1.0, "purchase": 10.0})
        >>> float(layer({"click": tf.constant(0.0), "purchase": tf.constant(0.0)}))
        5.5
    """

    def __init__(
        self,
        weights: Mapping[str, float],
        combination: Combination = "probability",
        grades: Sequence[str] = (),
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if combination not in ("probability", "logit"):
            raise ValueError(
                f"combination must be probability or logit. Received: combination={combination!r}"
            )
        self.weights_of_tasks = dict(weights)
        self.combination = combination
        self.grades = tuple(grades)

    def call(self, scores: Mapping[str, Any]) -> Any:
        """Scores by task, each of one shape -> a score of that shape, float32."""
        total: Any = 0.0
        for name, weight in self.weights_of_tasks.items():
            score = tf.cast(scores[name], tf.float32)
            as_it_is = self.combination == "logit" or name in self.grades
            total += weight * (score if as_it_is else tf.sigmoid(score))
        return total

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "weights": dict(self.weights_of_tasks),
            "combination": self.combination,
            "grades": list(self.grades),
        }


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class TaskOfCategory(tf.keras.layers.Layer):
    """Picks for each list the logits of the task that its category belongs to.

    So each list of a mini-batch trains the tower (and the gate) of its own group of categories: how
    Xiao et al. (section II) set up MMoE for product search, "treating different groups of major product
    categories as different tasks, within a mini-batch".

    Args:
        groups: per task the names of its categories. A name that stands nowhere goes to the last one.

    Example:
        >>> layer = TaskOfCategory([["toys"], ["books", "food"]])
        >>> logits = tf.constant([[[1.0, 2.0]], [[3.0, 4.0]]])
        >>> layer(logits, tf.constant([["toys"], ["food"]])).numpy().tolist()
        [[1.0], [4.0]]
    """

    def __init__(self, groups: Sequence[Sequence[str]], **kwargs: Any):
        super().__init__(**kwargs)
        self.groups = [list(group) for group in groups]

    def call(self, logits: Any, categories: Any) -> Any:
        """Logits [B, L, tasks] or [B, L, tasks, M], names [B, 1] -> logits [B, L] or [B, L, M]."""
        return tf.gather(logits, self.task(categories), axis=2, batch_dims=1)

    def task(self, categories: Any) -> Any:
        """The number of the task of each name, string [B, 1] -> int32 [B]."""
        task = tf.fill(tf.shape(categories)[:1], len(self.groups) - 1)
        for number, group in enumerate(self.groups[:-1]):
            for name in group:
                task = tf.where(categories[:, 0] == name, number, task)
        return task

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "groups": [list(group) for group in self.groups]}
