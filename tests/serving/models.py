"""Small Keras models that keep the model contract, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.schema import MASK, FeatureSchema, Scope

SHOP = FeatureSchema.model_validate(
    {
        "list_id": "session",
        "labels": ["bought"],
        "hierarchy": {"child": "sub", "parent": "top"},
        "features": [
            {"name": "top", "scope": "context", "kind": "categorical"},
            {"name": "sub", "scope": "context", "kind": "categorical"},
            {"name": "age", "scope": "context", "kind": "numeric", "default": 40.0},
            {"name": "price", "scope": "example", "kind": "numeric", "required": True},
            {"name": "stars", "scope": "example", "kind": "numeric", "default": 3.0},
            {"name": "brand", "scope": "example", "kind": "categorical"},
            {"name": "tags", "scope": "example", "kind": "categorical_list", "max_length": 3},
        ],
    }
)
BRANDS = ["acme", "bolt", "crux"]
CATEGORIES = ["food", "toys"]


def operations_of(signatures: Iterable[Any]) -> set[str]:
    """Names of the operations in concrete functions and in all functions that they call."""
    operations: set[str] = set()
    for signature in signatures:
        library = signature.graph.as_graph_def().library.function
        nodes = [*signature.graph.as_graph_def().node, *(n for f in library for n in f.node_def)]
        # A call by the function's name is not an operation.
        operations |= {node.op for node in nodes} - {f.signature.name for f in library}
    return operations


def inputs_of(schema: FeatureSchema) -> dict[str, Any]:
    """The Keras inputs of the model contract."""
    inputs = {MASK: tf.keras.Input([None], dtype=tf.bool, name=MASK)}
    leads: dict[Scope, list[None]] = {"context": [], "example": [None]}
    for scope, lead in leads.items():
        for name, spec in schema.feature_spec(scope).items():
            inputs[name] = tf.keras.Input([*lead, *spec.shape], dtype=spec.dtype, name=name)
    return inputs


def ids(inputs: Any, vocabulary: list[str], seed: int, width: int = 4) -> Any:
    """String lookup and embedding of ids; unknown ones share row 0."""
    rows = tf.keras.layers.StringLookup(vocabulary=vocabulary)(inputs)
    start = tf.keras.initializers.RandomNormal(seed=seed)
    return tf.keras.layers.Embedding(len(vocabulary) + 1, width, start)(rows)


def towers(inputs: dict[str, Any], experts: int) -> Any:
    """Logits of `experts` linear towers over all features, [B, L, experts]."""
    brand = ids(inputs["brand"], BRANDS, 1)[:, :, 0]
    tags = tf.reduce_mean(ids(inputs["tags"], ["new", "sale"], 2), axis=2)
    top = ids(inputs["top"], CATEGORIES, 3)[:, 0]
    sub = ids(inputs["sub"], ["balls", "bread"], 4)[:, 0]
    query = tf.concat([top, sub, inputs["context_numeric"] / 100.0], axis=-1)
    query = query[:, tf.newaxis] * tf.ones_like(inputs["example_numeric"][..., :1])
    x = tf.concat([inputs["example_numeric"] / 10.0, brand, tags, query], axis=-1)
    x = tf.keras.layers.Dropout(0.5)(x)
    start = tf.keras.initializers.GlorotNormal(seed=5)
    return tf.keras.layers.Dense(experts, kernel_initializer=start, bias_initializer="ones")(x)


def scorer(schema: FeatureSchema = SHOP) -> tf.keras.Model:
    """One tower: logits [B, L]."""
    inputs = inputs_of(schema)
    return tf.keras.Model(inputs, towers(inputs, 1)[..., 0])


def mixture(item_level: bool = False) -> tuple[tf.keras.Model, tf.keras.Model]:
    """Three towers, two of them active by category (or by item), and the explanation of it."""
    inputs = inputs_of(SHOP)
    logits = towers(inputs, 3)
    gate = ids(inputs["brand" if item_level else "top"], BRANDS + CATEGORIES, 6, width=3)
    gate = gate[:, :, 0] if item_level else gate[:, 0]
    values, active = tf.math.top_k(gate, 2)
    weights = tf.nn.softmax(values)
    per_item = (weights, active) if item_level else (weights[:, tf.newaxis], active[:, tf.newaxis])
    one_hot = tf.reduce_sum(tf.one_hot(per_item[1], 3) * per_item[0][..., tf.newaxis], axis=-2)
    scores = tf.reduce_sum(logits * one_hot, axis=-1)
    explained = {"logits": scores, "expert_ids": active, "expert_weights": weights}
    return tf.keras.Model(inputs, scores), tf.keras.Model(inputs, explained)
