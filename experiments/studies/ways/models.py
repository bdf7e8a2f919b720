"""The models: one tower or experts, with one way to let the category change them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfr_moe.layers import CategoryMixtureOfExperts

EMBEDDING = 8
BINS = 12
FREQUENCIES = 4
RANK = 8


@dataclass(frozen=True)
class Way:
    """What a model does differently from one tower with the categories as inputs.

    Attributes:
        hidden: widths of the tower, or of an expert.
        experts: N; 0 for one tower.
        top_k: K.
        recommended: with a shared expert and a gate that starts from the parent's.
        gate_sees_list: the gate also gets the mean of the items and the list's context.
        by_category: what has weights of parent plus child category, some of `last` (the last
            layer), `head` (a linear score), `film` (scale and shift of the first hidden layer),
            `adapters` (a product of rank 8, modulated by the category, beside the first layer) and
            `lhuc` (each hidden layer times twice the sigmoid of a small network of the category, as
            in PPNet).
        numbers: `plain`, `piecewise` (piecewise-linear in 12 quantiles, Gorishniy et al. 2022) or
            `periodic` (sines and cosines of 4 learned frequencies each, the same paper).
        crosses: number of cross layers of DCN v2 before the tower.
        categories: whether parent and child are inputs.
        loss: `softmax`, `positives` (each positive against the negatives alone) or `lambda`
            (LambdaLoss, NDCG-Loss2++).
        averaged: scores with the exponential moving average of the weights.
        teacher: the share of the loss that imitates an ensemble.
    """

    hidden: tuple[int, ...] = (176, 88)
    experts: int = 0
    top_k: int = 4
    recommended: bool = False
    gate_sees_list: bool = False
    by_category: tuple[str, ...] = ()
    numbers: str = "plain"
    crosses: int = 0
    categories: bool = True
    loss: str = "softmax"
    averaged: bool = False
    teacher: float = 0.0


class ByCategory(tf.keras.layers.Layer):
    """A vector of each list: that of its parent category plus that of its child.

    Args:
        width: of the vector.
        parents: largest code of a parent.
        children: largest code of a child.
        start: initial value of the parents' vectors; children start at 0.
    """

    def __init__(self, width: int, parents: int, children: int, start: str = "zeros"):
        super().__init__()
        self.parent = tf.keras.layers.Embedding(parents + 1, width, embeddings_initializer=start)
        self.child = tf.keras.layers.Embedding(children + 1, width, embeddings_initializer="zeros")

    def call(self, ids: tf.Tensor) -> tf.Tensor:
        """Codes [B, 2 or more] -> [B, width]."""
        return self.parent(ids[:, 0]) + self.child(ids[:, 1])


class Adapters(tf.keras.layers.Layer):
    """A layer of rank 8 whose inner values are multiplied by a vector of the category.

    Args:
        units: of the result.
        parents: largest code of a parent.
        children: largest code of a child.
    """

    def __init__(self, units: int, parents: int, children: int):
        super().__init__()
        self.down = tf.keras.layers.Dense(RANK, use_bias=False)
        self.category = ByCategory(RANK, parents, children)
        self.up = tf.keras.layers.Dense(units, use_bias=False)

    def call(self, items: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """[B, L, n], codes [B, 2 or more] -> [B, L, units], 0 at the start."""
        return self.up(self.down(items) * self.category(ids)[:, tf.newaxis])


class HiddenScales(tf.keras.layers.Layer):
    """Factors between 0 and 2 of the hidden units of each layer, by a network of the category.

    Args:
        widths: of the hidden layers.
    """

    def __init__(self, widths: tuple[int, ...]):
        super().__init__()
        self.inner = tf.keras.layers.Dense(32, "relu")
        self.outer = [tf.keras.layers.Dense(width, "sigmoid") for width in widths]

    def call(self, category: tf.Tensor) -> list[tf.Tensor]:
        """[B, n] -> [B, width] for each layer."""
        inner = self.inner(category)
        return [2 * layer(inner) for layer in self.outer]


class PiecewiseNumbers(tf.keras.layers.Layer):
    """Each number as 12 coordinates that fill one after the other between training quantiles.

    Args:
        edges: [n, 13] rising quantiles of each number.
    """

    def __init__(self, edges: Any):
        super().__init__()
        self.low = tf.constant(edges[:, :-1], tf.float32)
        self.width = tf.maximum(tf.constant(edges[:, 1:] - edges[:, :-1], tf.float32), 1e-6)

    def call(self, numbers: tf.Tensor) -> tf.Tensor:
        """[B, L, n] -> [B, L, 12 n]."""
        shares = tf.clip_by_value((numbers[..., tf.newaxis] - self.low) / self.width, 0.0, 1.0)
        return tf.reshape(shares, [*tf.unstack(tf.shape(numbers)[:2]), self.low.shape[0] * BINS])


class PeriodicNumbers(tf.keras.layers.Layer):
    """Sines and cosines of each number with learned frequencies."""

    def build(self, input_shape: Any) -> None:
        """Creates the frequencies."""
        self.frequencies = self.add_weight(
            "frequencies",
            [input_shape[-1], FREQUENCIES],
            initializer=tf.keras.initializers.RandomNormal(stddev=0.3),
        )

    def call(self, numbers: tf.Tensor) -> tf.Tensor:
        """[B, L, n] -> [B, L, 2 x 4 n]."""
        angles = 6.283185 * numbers[..., tf.newaxis] * self.frequencies
        waves = tf.concat([tf.sin(angles), tf.cos(angles)], axis=-1)
        width = self.frequencies.shape[0] * 2 * FREQUENCIES
        return tf.reshape(waves, [*tf.unstack(tf.shape(numbers)[:2]), width])


class WayModel(tf.keras.Model):
    """Lists of 20 items to logits [B, 20].

    Args:
        way: what is different.
        sizes: see `lists.sizes`.
        edges: [n, 13] quantiles of the numbers, for `piecewise`.
        seed: of the mixture.
    """

    def __init__(self, way: Way, sizes: Mapping[str, Any], edges: Any, seed: int):
        super().__init__()
        self.way = way
        parents, children = sizes["ids"][:2]
        self.tables = [
            tf.keras.layers.Embedding(rows + 1, EMBEDDING if column < 2 else 4)
            for column, rows in enumerate(sizes["ids"])
        ]
        self.encode = {
            "plain": tf.keras.layers.Activation("linear"),
            "piecewise": PiecewiseNumbers(edges),
            "periodic": PeriodicNumbers(),
        }[way.numbers]
        width = 2 * EMBEDDING * way.categories + 4 * (len(sizes["ids"]) - 2) + sizes["context"]
        per_number = {"plain": 1, "piecewise": 1 + BINS, "periodic": 1 + 2 * FREQUENCIES}
        self.width = width + sizes["numbers"] * per_number[way.numbers]
        self.crosses = [tf.keras.layers.Dense(self.width) for _ in range(way.crosses)]
        if way.experts:
            self.mixture = CategoryMixtureOfExperts(
                num_experts=way.experts,
                top_k=way.top_k,
                num_adversarial=0,
                hsc_weight=0.1 if way.recommended else None,
                importance_weight=0.01,
                gate_learning_rate_multiplier=5.0,
                expert_hidden_dims=way.hidden,
                gate_residual=way.recommended,
                shared_expert=way.recommended,
                seed=seed,
            )
        else:
            self.hidden = [tf.keras.layers.Dense(units, "relu") for units in way.hidden]
            self.last = tf.keras.layers.Dense(1)
        layers: dict[str, Any] = {
            "last": lambda: ByCategory(way.hidden[-1], parents, children),
            "head": lambda: ByCategory(sizes["numbers"], parents, children),
            "film": lambda: ByCategory(2 * way.hidden[0], parents, children),
            "adapters": lambda: Adapters(way.hidden[0], parents, children),
            "lhuc": lambda: HiddenScales(way.hidden),
        }
        self.by_category = {name: layers[name]() for name in way.by_category}

    def call(self, inputs: tuple[tf.Tensor, ...], training: bool = False) -> tf.Tensor:
        """(numbers [B, L, n], context [B, c], ids [B, d], mask [B, L]) -> [B, L]."""
        numbers, context, ids, mask = inputs
        vectors = [table(ids[:, column]) for column, table in enumerate(self.tables)]
        of_list = tf.concat([context, *vectors[0 if self.way.categories else 2 :]], axis=-1)
        encoded = [numbers] if self.way.numbers == "plain" else [numbers, self.encode(numbers)]
        repeated = tf.repeat(of_list[:, tf.newaxis], tf.shape(numbers)[1], axis=1)
        items = tf.concat([*encoded, repeated], axis=-1)
        items.set_shape([None, None, self.width])
        crossed = items
        for layer in self.crosses:
            crossed = items * layer(crossed) + crossed
        if self.way.experts:
            gate = vectors[1]
            if self.way.gate_sees_list:
                weights = tf.cast(mask, tf.float32)[..., tf.newaxis]
                means = tf.reduce_sum(numbers * weights, 1) / tf.reduce_sum(weights, 1)
                gate = tf.concat([gate, means, of_list], axis=-1)
            parent = vectors[0] if self.way.recommended else None
            logits = self.mixture(crossed, gate, parent, mask=mask, training=training)["logits"]
        else:
            logits = self._tower(crossed, ids, vectors)
        if "head" in self.by_category:
            weights = self.by_category["head"](ids)
            logits += tf.reduce_sum(numbers * weights[:, tf.newaxis], axis=-1)
        return tf.where(mask, logits, -1e9)

    def _tower(self, items: tf.Tensor, ids: tf.Tensor, vectors: list[tf.Tensor]) -> tf.Tensor:
        parts = self.by_category
        scales = parts["lhuc"](tf.concat(vectors[:2], axis=-1)) if "lhuc" in parts else None
        hidden = items
        for number, layer in enumerate(self.hidden):
            hidden = layer(hidden)
            if scales is not None:
                hidden *= scales[number][:, tf.newaxis]
            if number == 0 and "film" in parts:
                scale, shift = tf.split(parts["film"](ids)[:, tf.newaxis], 2, axis=-1)
                hidden = hidden * (1 + scale) + shift
            if number == 0 and "adapters" in parts:
                hidden += parts["adapters"](items, ids)
        logits = self.last(hidden)[..., 0]
        if "last" in parts:
            logits += tf.reduce_sum(hidden * parts["last"](ids)[:, tf.newaxis], axis=-1)
        return logits
