"""The refusal of categories that a model was not exported for."""

from __future__ import annotations

from collections.abc import Sequence

from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.schema import MASK, PAIR_SEPARATOR, FeatureSchema

from .gaps import Features


class CategoryGuard(tf.Module):
    """Lets lists of some categories through.

    Args:
        schema: names the hierarchy.
        keys: `parent > child` of each category that is served.

    Raises:
        UserError: if the schema names no hierarchy.

    Example:
        >>> schema = FeatureSchema(
        ...     list_id="query",
        ...     labels=["click"],
        ...     hierarchy={"child": "sub", "parent": "top"},
        ...     features=[
        ...         {"name": name, "scope": "context", "kind": "categorical"}
        ...         for name in ("top", "sub")
        ...     ],
        ... )
        >>> guard = CategoryGuard(schema, ["toys > balls"])
        >>> def ask(child):
        ...     named = {"top": tf.constant([["toys"]]), "sub": tf.constant([[child]])}
        ...     return guard({**named, MASK: tf.constant([[True]])})
        >>> sorted(ask("balls"))
        ['example_list_mask', 'sub', 'top']
        >>> ask("dolls")  # doctest: +IGNORE_EXCEPTION_DETAIL
        Traceback (most recent call last):
        tensorflow.python.framework.errors_impl.InvalidArgumentError: ...
    """

    def __init__(self, schema: FeatureSchema, keys: Sequence[str]):
        super().__init__(name="categories")
        if schema.hierarchy is None:
            raise UserError("categories: the schema names no `hierarchy`")
        self._hierarchy = schema.hierarchy
        served = tf.lookup.KeyValueTensorInitializer(tf.constant(list(keys)), tf.ones(len(keys)))
        self.table = tf.lookup.StaticHashTable(served, 0.0)

    def __call__(self, features: Features) -> Features:
        """The features as they are.

        Raises:
            tf.errors.InvalidArgumentError: when it runs, naming the first category that isn't served.
        """
        names = [features[self._hierarchy.parent], features[self._hierarchy.child]]
        keys = tf.strings.join([name[:, 0] for name in names], PAIR_SEPARATOR)
        foreign = (self.table.lookup(keys) == 0.0) & tf.reduce_any(features[MASK], 1)
        served = tf.debugging.Assert(
            tf.logical_not(tf.reduce_any(foreign)),
            ["this model was exported without the category", tf.boolean_mask(keys, foreign)[:1]],
        )
        with tf.control_dependencies([served]):
            return {name: tf.identity(value) for name, value in features.items()}
