"""Scores -> answers: padding masked, sizes cut to those of the request, items in rank order."""

from __future__ import annotations

from tfr_moe._compat import tf

SCORES = "scores"
EXPERT_IDS = "expert_ids"
EXPERT_WEIGHTS = "expert_weights"

LOWEST = tf.float32.min
"""The score of padded places: no real item scores below it."""

Tensors = dict[str, tf.Tensor]


class Batch:
    """The true size of a batch that was filled up.

    Args:
        size: number of lists of the request, int32 scalar.
        mask: bool [B, L], True at items.
        places: number of places of each list in the request, int32 scalar; None for the longest list.
        list_size: L where that is fixed and so is the width of answers; None where it isn't.
    """

    def __init__(
        self,
        size: tf.Tensor,
        mask: tf.Tensor,
        places: tf.Tensor | None = None,
        list_size: int | None = None,
    ):
        self.mask = mask
        self.valid = tf.reduce_sum(tf.cast(mask, tf.int32), axis=1)
        self._size = size
        widest = tf.reduce_max(self.valid) if places is None else places
        self._width = widest if list_size is None else list_size

    def masked(self, logits: tf.Tensor) -> tf.Tensor:
        """Logits [B, L] as float32, with the lowest one where there is no item."""
        return tf.where(self.mask, tf.maximum(tf.cast(logits, tf.float32), LOWEST), LOWEST)

    def cut(self, value: tf.Tensor, listwise: bool = True) -> tf.Tensor:
        """The part of [B, L, ...], or of [B, ...], that the request asked for."""
        return value[: self._size, : self._width] if listwise else value[: self._size]


def ranked(outputs: Tensors, batch: Batch) -> Tensors:
    """Sorts by score, best first; ties keep the order of the request.

    Args:
        outputs: `scores` [B, L], `scores_<task>` [B, L], and for models with experts `expert_ids` and
            `expert_weights`, possibly with `_<task>`: [B, K], or [B, L, K] by item.
        batch: of the request.

    Returns:
        `order`, `scores`, `valid`, and what else there was, in rank order where it belongs to items.
    """
    scores = batch.masked(outputs[SCORES])
    best_first = tf.argsort(scores, axis=1, direction="DESCENDING", stable=True)
    # Padding comes after the items of a list, so among equal scores it stays behind them.
    places = tf.sequence_mask(batch.valid, tf.shape(batch.mask)[1])
    found = {
        "order": batch.cut(tf.where(places, best_first, -1)),
        SCORES: batch.cut(tf.gather(scores, best_first, batch_dims=1)),
        "valid": batch.cut(batch.valid, listwise=False),
    }
    for name, value in outputs.items():
        if name.startswith(f"{SCORES}_"):
            found[name] = batch.cut(tf.gather(batch.masked(value), best_first, batch_dims=1))
        elif name.startswith((EXPERT_IDS, EXPERT_WEIGHTS)):
            item_level = value.shape.rank == 3
            if item_level:
                padding = tf.cast(-1 if name.startswith(EXPERT_IDS) else 0, value.dtype)
                value = tf.gather(value, best_first, batch_dims=1)
                value = tf.where(places[..., tf.newaxis], value, padding)
            found[name] = batch.cut(value, item_level)
    return found
