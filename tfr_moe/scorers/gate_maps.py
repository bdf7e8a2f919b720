"""Gate maps: the experts of each category, and the distribution of load over the experts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfr_moe._compat import tf
from tfr_moe.layers.gating import DEAD_SHARE
from tfr_moe.schema import MASK, FeatureSchema
from tfr_moe.scorers.base import (
    explanation_model,
    inference_function,
    num_experts,
    routing_in,
    routing_of,
)

Array = NDArray[Any]


@dataclass(frozen=True)
class CategoryGate:
    """The mean weights [N] of the experts in a category; `child` is "" for a whole top category."""

    parent: str
    child: str
    lists: int
    weights: list[float]


@dataclass(frozen=True)
class GateReport:
    r"""Statistics of one gate on a data set.

    With w_i(x) the weight of expert i for item x,

    $$ u_i = \frac{\sum_x w_i(x)}{\sum_{x,j} w_j(x)}, \qquad
       load_i = \frac{|\{x : w_i(x) > 0\}|}{|\{x\}|}, \qquad
       H = -\text{mean}_x \sum_i w_i(x) \ln w_i(x) $$

    Attributes:
        top_k: K, the experts of an item.
        utilisation: u, [N]; sums to 1.
        load: [N]; sums to K.
        dead: the experts with u_i < 0.01 / N.
        entropy: H in nats; at most ln K.
        top_categories: mean gates of the top categories, by decreasing number of lists.
        sub_categories: mean gates of the sub-categories, by top category and number of lists.
        within_category_similarity: mean cosine between the gates of two sub-categories of one top
            category; None without such pairs.
        between_category_similarity: the same for sub-categories of different top categories.
    """

    num_experts: int
    top_k: int
    lists: int
    items: int
    utilisation: list[float]
    load: list[float]
    dead: list[int]
    entropy: float
    top_categories: list[CategoryGate]
    sub_categories: list[CategoryGate]
    within_category_similarity: float | None
    between_category_similarity: float | None


def _pairs(vectors: Array) -> tuple[float, int]:
    """Sum of the cosines over all pairs of rows, and the number of pairs, in linear time."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    units = vectors / np.maximum(norms, 1e-12)
    count = len(units)
    total = float(np.square(units.sum(axis=0)).sum() - np.square(units).sum()) / 2
    return total, count * (count - 1) // 2


class GateMap:
    """Accumulates the choices of one gate of N experts, in memory of the number of categories."""

    def __init__(self, num_experts: int):
        self._num_experts = num_experts
        self._top_k = 0
        self._lists = self._items = 0
        self._entropy = 0.0
        self._weight, self._chosen = np.zeros(num_experts), np.zeros(num_experts)
        self._gates: dict[tuple[str, str], Array] = {}

    def add(
        self,
        ids: Array,
        weights: Array,
        mask: Array,
        parents: Array | None = None,
        children: Array | None = None,
    ) -> None:
        """Adds the choices [B, K] of the gate for some lists, or [B, L, K] for a gate per item.

        `mask` is bool [B, L]; `parents` and `children` are the categories [B], None without a
        hierarchy.
        """
        dense = np.zeros([*ids.shape[:-1], self._num_experts])
        np.put_along_axis(dense, ids.astype(np.int64), weights, axis=-1)
        nonempty = mask.any(axis=1)
        mask, dense = mask[nonempty].astype(np.float64), dense[nonempty]
        items = mask.sum(axis=1)
        # A choice for a list counts once per item.
        mass = (items if dense.ndim == 2 else mask)[..., np.newaxis]
        axes = tuple(range(dense.ndim - 1))
        self._top_k = ids.shape[-1]
        self._lists += len(items)
        self._items += int(items.sum())
        self._weight += (dense * mass).sum(axis=axes)
        self._chosen += ((dense > 0) * mass).sum(axis=axes)
        logs = np.log(np.where(dense > 0, dense, 1.0))
        self._entropy -= float((dense * logs * mass).sum())
        if parents is not None and children is not None:
            means = dense if dense.ndim == 2 else (dense * mass).sum(axis=1) / items[:, np.newaxis]
            self._add_categories(means, parents[nonempty], children[nonempty])

    def _add_categories(self, gates: Array, parents: Array, children: Array) -> None:
        pairs = [f"{p}\0{c}" for p, c in zip(parents, children, strict=True)]
        names, groups = np.unique(np.array(pairs, object).astype(str), return_inverse=True)
        sums = np.zeros([len(names), self._num_experts + 1])
        np.add.at(sums, groups.reshape(-1), np.column_stack([gates, np.ones(len(gates))]))
        for name, row in zip(names, sums, strict=True):
            parent, _, child = str(name).partition("\0")
            known = self._gates.get((parent, child))
            self._gates[parent, child] = row if known is None else known + row

    def report(self) -> GateReport:
        """The report over all batches."""
        share = self._weight / max(self._weight.sum(), 1e-12)
        tops, subs, within, between = self._categories()
        return GateReport(
            num_experts=self._num_experts,
            top_k=self._top_k,
            lists=self._lists,
            items=self._items,
            utilisation=share.tolist(),
            load=(self._chosen / max(self._items, 1)).tolist(),
            dead=np.flatnonzero(share < DEAD_SHARE / self._num_experts).tolist(),
            entropy=self._entropy / max(self._items, 1),
            top_categories=tops,
            sub_categories=subs,
            within_category_similarity=within,
            between_category_similarity=between,
        )

    def _categories(
        self,
    ) -> tuple[list[CategoryGate], list[CategoryGate], float | None, float | None]:
        """Gates of top and sub-categories, and their similarity within and between the former."""
        by_parent: dict[str, dict[str, Array]] = {}
        for (parent, child), row in self._gates.items():
            by_parent.setdefault(parent, {})[child] = row
        sums = {parent: np.stack([*rows.values()]) for parent, rows in by_parent.items()}
        tops, subs = [], []
        within, pairs_within = 0.0, 0
        for parent in sorted(sums, key=lambda parent: -sums[parent][:, -1].sum()):
            cosines, pairs = _pairs(sums[parent][:, :-1])
            within, pairs_within = within + cosines, pairs_within + pairs
            tops.append(_gate(parent, "", sums[parent].sum(axis=0)))
            children = sorted(by_parent[parent].items(), key=lambda entry: -entry[1][-1])
            subs += [_gate(parent, child, row) for child, row in children]
        total, pairs = _pairs(np.stack([*self._gates.values()])[:, :-1]) if subs else (0.0, 0)
        return (
            tops,
            subs,
            within / pairs_within if pairs_within else None,
            (total - within) / (pairs - pairs_within) if pairs > pairs_within else None,
        )


def _gate(parent: str, child: str, row: Array) -> CategoryGate:
    return CategoryGate(parent, child, int(row[-1]), (row[:-1] / row[-1]).tolist())


def most_weighted(weights: Sequence[float] | Array, count: int) -> tuple[int, ...]:
    """The experts with the most weight, in the order of their numbers."""
    return tuple(sorted(np.argsort(-np.asarray(weights), kind="stable")[:count].tolist()))


def strings(tensor: Any) -> Array:
    """[B, 1] string tensor -> [B] array of str."""
    values = np.asarray(tensor).reshape(-1)
    return np.array([value.decode("utf-8", errors="replace") for value in values], dtype=object)


def gate_reports(
    model: tf.keras.Model, dataset: Iterable[tuple[Any, ...]], schema: FeatureSchema
) -> dict[str, GateReport]:
    """Runs the gates of a model over a data set, without the towers.

    Returns a report for each gate by its task, "" for a gate of all tasks; empty without experts.
    Elements of the data set begin with raw features.
    """
    explained = explanation_model(model)
    if explained is None:
        return {}
    gates = tf.keras.Model(explained.input, routing_in(explained.output))
    route = inference_function(gates, schema)
    maps = {task: GateMap(num_experts(model)) for task in routing_of(explained.output)}
    tree = schema.hierarchy
    for features, *_ in dataset:
        parents = None if tree is None else strings(features[tree.parent])
        children = None if tree is None else strings(features[tree.child])
        mask = features[MASK].numpy()
        for task, (ids, weights) in routing_of(route(features)).items():
            exact = weights.numpy().astype(np.float64)
            maps[task].add(ids.numpy(), exact, mask, parents, children)
    return {task: gate.report() for task, gate in maps.items()}
