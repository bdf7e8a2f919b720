"""What the Keras model itself answers: the truth that an export is compared with.

Lists are read by the schema's own parsing specs, not by the parsers that are exported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tfr_moe._compat import tf, tfr
from tfr_moe.errors import UserError
from tfr_moe.schema import MASK, FeatureSchema

from .gaps import Features
from .ranked import EXPERT_IDS, EXPERT_WEIGHTS
from .signatures import explained_by_name, scores_by_name

BATCH = 16

Answer = dict[str, np.ndarray]
"""Output -> its values for one list, padding cut off: [items], or [K] or [items, K] of experts."""


def batches_of(lists: Sequence[bytes]) -> Iterator[list[bytes]]:
    """The lists in batches of `BATCH`."""
    for start in range(0, len(lists), BATCH):
        yield list(lists[start : start + BATCH])


def answers_in_process(
    model: tf.keras.Model,
    schema: FeatureSchema,
    lists: Sequence[bytes],
    explanation: tf.keras.Model | None = None,
) -> list[Answer]:
    """The scores that the Keras model gives each list, and the experts that made them.

    Raises:
        UserError: if a list does not fit the schema, or if its scores are not finite.
    """
    found: list[Answer] = []
    for batch in batches_of(lists):
        features = parsed(schema, batch)
        with tf.device("/CPU:0"):
            outputs = scores_by_name(model(features, training=False))
            if explanation is not None:
                explained = explained_by_name(explanation(features, training=False))
                outputs |= {n: v for n, v in explained.items() if is_of_experts(n)}
        found += _by_list(outputs, features[MASK].numpy())
    for number, answer in enumerate(found):
        for name, values in answer.items():
            if not np.isfinite(values).all():
                raise UserError(f"warm-up list {number}: the model's {name} are not finite")
    return found


def is_of_experts(name: str) -> bool:
    """Whether an output names experts or their weights."""
    return name.startswith((EXPERT_IDS, EXPERT_WEIGHTS))


def _by_list(outputs: dict[str, tf.Tensor], mask: np.ndarray) -> list[Answer]:
    arrays = {name: value.numpy() for name, value in outputs.items()}
    # What belongs to a list has the same shape whatever the number of its items.
    of_list = {name for name in arrays if is_of_experts(name) and arrays[name].ndim == 2}
    return [
        {name: a[row] if name in of_list else a[row][real] for name, a in arrays.items()}
        for row, real in enumerate(mask)
    ]


def single_items(features: Features) -> Features:
    """Each item of parsed lists, padding left out, as a list of its own."""
    mask = features[MASK]
    lists = tf.where(mask)[:, 0]
    return {
        # The mask has the axis of the items; what has none belongs to the list.
        name: tf.boolean_mask(value, mask)[:, tf.newaxis]
        if name == MASK or value.shape.rank == 3
        else tf.gather(value, lists)
        for name, value in features.items()
    }


def parsed(schema: FeatureSchema, lists: Sequence[bytes]) -> Features:
    """Serialized lists as the model's inputs.

    Raises:
        UserError: if one does not fit the schema.
    """
    try:
        return tfr.data.parse_from_example_list(
            tf.constant(lists),
            context_feature_spec=schema.feature_spec("context"),
            example_feature_spec=schema.feature_spec("example"),
            mask_feature_name=MASK,
        )
    except tf.errors.OpError as error:
        reason = " ".join(str(error.message).split())
        raise UserError(f"a warm-up list does not fit the schema: {reason}") from error
