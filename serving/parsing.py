"""Serialized requests -> the model's inputs, with TensorFlow's own ops. A request carries raw values."""

from __future__ import annotations

import math

from tfr_moe._compat import tf, tfr
from tfr_moe.schema import MASK, FeatureSchema, Scope

from .gaps import ABSENT, Features, complete
from .sizes import at_least


class RequestParser:
    """Parses requests by a schema.

    What it returns holds at least one list of one item, so that models need no code for nothing:
    an empty batch and a batch of empty lists are filled up with padding, which the mask tells.

    Example:
        >>> schema = FeatureSchema(
        ...     list_id="query",
        ...     labels=["click"],
        ...     features=[{"name": "price", "scope": "example", "kind": "numeric"}],
        ... )
        >>> features = RequestParser(schema).lists(tf.constant([], tf.string))
        >>> sorted((name, tuple(tensor.shape)) for name, tensor in features.items())
        [('example_list_mask', (1, 1)), ('example_numeric', (1, 1, 1))]
    """

    def __init__(self, schema: FeatureSchema):
        self._schema = schema
        self._specs = {scope: self._spec(scope) for scope in ("context", "example")}

    def _spec(self, scope: Scope) -> dict[str, tf.io.FixedLenFeature]:
        """The schema's spec with defaults by which a missing value is known as missing."""
        spec = {}
        for name, plain in self._schema.feature_spec(scope).items():
            length = plain.shape[0]
            if plain.dtype == tf.float32:
                default: list[float] | list[str] = [math.nan] * length
            else:
                feature = self._schema.feature(name)
                first = ""
                if feature.kind == "categorical_list":
                    first = ABSENT if feature.is_required else str(feature.default or "")
                default = [first] + [""] * (length - 1)
            spec[name] = tf.io.FixedLenFeature(plain.shape, plain.dtype, default)
        return spec

    def lists(self, serialized: tf.Tensor) -> Features:
        """Parses serialized `ExampleListWithContext`s.

        Args:
            serialized: strings [B].

        Returns:
            Context features [B, m], example features [B, L, m] with L the widest list of the batch,
            and the mask, bool [B, L].

        Raises:
            tf.errors.DataLossError: for bytes that are no `ExampleListWithContext`.
            tf.errors.InvalidArgumentError: for a missing required feature, by name, and for values
                of the wrong type or number.
        """
        features = tfr.data.parse_from_example_list(
            _at_least_one(serialized),
            context_feature_spec=self._specs["context"],
            example_feature_spec=self._specs["example"],
            mask_feature_name=MASK,
        )
        features = complete(self._schema, features)
        for name in (MASK, *self._specs["example"]):
            # Where all lists are empty, the proto decoder gives one item to the features and none to
            # the mask.
            features[name] = at_least(features[name], 1, 1)
        return features

    def items(self, serialized: tf.Tensor) -> Features:
        """Parses serialized `tf.train.Example`s, each an item together with its context.

        Args:
            serialized: strings [B].

        Returns:
            The same as `lists`, for B lists of one item.
        """
        filled = _at_least_one(serialized)
        features = tfr.data.parse_from_tf_example(
            filled,
            context_feature_spec=self._specs["context"],
            example_feature_spec=self._specs["example"],
        )
        places = tf.range(tf.shape(filled)[0])[:, tf.newaxis]
        features[MASK] = places < tf.shape(serialized)[0]
        return complete(self._schema, features)


def _at_least_one(serialized: tf.Tensor) -> tf.Tensor:
    # TensorFlow's proto decoder refuses an empty batch; the empty string is an empty message.
    return at_least(serialized, 0, 1)
