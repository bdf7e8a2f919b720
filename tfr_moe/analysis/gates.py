"""Gate maps: which experts serve which category, and how the work is spread over them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.analysis.groups import Array
from tfr_moe.evaluation.score import strings
from tfr_moe.schema import MASK, FeatureSchema
from tfr_moe.scorers.explain import explanation_model, num_experts

_IDS, _WEIGHTS = "expert_ids", "expert_weights"
DEAD_SHARE = 0.01
"""An expert with less than this part of an equal share is dead, as in the metrics of training."""


class GateBatch(NamedTuple):
    """The choices of one gate for some lists.

    Attributes:
        ids: int [B, K], or [B, L, K] where each item has a choice of its own.
        weights: of the same shape.
        mask: bool [B, L], True at items.
        parents: [B] names of top categories, None without a hierarchy.
        children: [B] names of their sub-categories, None without a hierarchy.
    """

    ids: Array
    weights: Array
    mask: Array
    parents: Array | None
    children: Array | None


@dataclass(frozen=True)
class CategoryGate:
    """The mean gate of one category.

    Attributes:
        parent: the top category.
        child: the sub-category, empty for the top category as a whole.
        lists: number of lists.
        weights: [N] mean weight of each expert over the lists.
        similarity: mean cosine between the gates of the top category's sub-categories; None for a
            sub-category, or with fewer than two.
    """

    parent: str
    child: str
    lists: int
    weights: list[float]
    similarity: float | None = None


@dataclass(frozen=True)
class GateReport:
    r"""What one gate does on a data set.

    With w_i(x) the weight of expert i for item x,

    $$ u_i = \frac{\sum_x w_i(x)}{\sum_{x,j} w_j(x)}, \qquad
       load_i = \frac{|\{x : w_i(x) > 0\}|}{|\{x\}|}, \qquad H = -\text{mean}_x \sum_i w_i(x) \ln w_i(x) $$

    Attributes:
        num_experts: N.
        top_k: K, the experts of an item.
        lists: number of lists.
        items: number of items.
        utilisation: u, [N]; sums to 1.
        load: [N]; sums to K.
        importance_variation: the squared coefficient of variation of u.
        dead: the experts with u_i < 0.01 / N.
        entropy: H in nats; at most ln K.
        top_categories: their mean gates, the one with the most lists first.
        sub_categories: theirs, by top category and number of lists.
        siblings: mean cosine between the gates of two sub-categories of one top category.
        strangers: the same of two sub-categories of different ones; both None where there are no pairs.
    """

    num_experts: int
    top_k: int
    lists: int
    items: int
    utilisation: list[float]
    load: list[float]
    importance_variation: float
    dead: list[int]
    entropy: float
    top_categories: list[CategoryGate]
    sub_categories: list[CategoryGate]
    siblings: float | None
    strangers: float | None


def _pairs(vectors: Array) -> tuple[float, int]:
    """Sum of the cosines over all pairs of rows, and the number of pairs; in linear time."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    units = vectors / np.maximum(norms, 1e-12)
    count = len(units)
    total = float(np.square(units.sum(axis=0)).sum() - np.square(units).sum()) / 2
    return total, count * (count - 1) // 2


class GateMap:
    """Gathers the choices of one gate, batch by batch.

    Memory grows with the number of categories only.

    Args:
        num_experts: N.

    Example:
        >>> gate = GateMap(num_experts=2)
        >>> chosen = np.array([[0], [0]])
        >>> gate.add(GateBatch(chosen, np.ones([2, 1]), np.ones([2, 3], bool), None, None))
        >>> gate.report().utilisation, gate.report().dead
        ([1.0, 0.0], [1])
    """

    def __init__(self, num_experts: int):
        self._num_experts = num_experts
        self._top_k = 0
        self._lists = self._items = 0
        self._entropy = 0.0
        self._weight, self._chosen = np.zeros(num_experts), np.zeros(num_experts)
        self._gates: dict[tuple[str, str], Array] = {}

    def add(self, batch: GateBatch) -> None:
        """Adds a batch."""
        kept = batch.mask.any(axis=1)
        mask, dense = batch.mask[kept].astype(np.float64), self._dense(batch)[kept]
        items = mask.sum(axis=1)
        # A decision for a list stands for its items, one for an item for itself.
        mass = (items if dense.ndim == 2 else mask)[..., np.newaxis]
        axes = tuple(range(dense.ndim - 1))
        self._top_k = batch.ids.shape[-1]
        self._lists += len(items)
        self._items += int(items.sum())
        self._weight += (dense * mass).sum(axis=axes)
        self._chosen += ((dense > 0) * mass).sum(axis=axes)
        logs = np.log(np.where(dense > 0, dense, 1.0))
        self._entropy -= float((dense * logs * mass).sum())
        if batch.parents is not None and batch.children is not None:
            means = dense if dense.ndim == 2 else (dense * mass).sum(axis=1) / items[:, np.newaxis]
            self._add_categories(means, batch.parents[kept], batch.children[kept])

    def _dense(self, batch: GateBatch) -> Array:
        """Weights over all experts, [B, N] or [B, L, N]."""
        dense = np.zeros([*batch.ids.shape[:-1], self._num_experts])
        np.put_along_axis(dense, batch.ids.astype(np.int64), batch.weights, axis=-1)
        return dense

    def _add_categories(self, gates: Array, parents: Array, children: Array) -> None:
        pairs = [f"{p}\0{c}" for p, c in zip(parents, children, strict=True)]
        names, places = np.unique(np.array(pairs, object).astype(str), return_inverse=True)
        sums = np.zeros([len(names), self._num_experts + 1])
        np.add.at(sums, places.reshape(-1), np.column_stack([gates, np.ones(len(gates))]))
        for name, row in zip(names, sums, strict=True):
            parent, _, child = str(name).partition("\0")
            known = self._gates.get((parent, child))
            self._gates[parent, child] = row if known is None else known + row

    def report(self) -> GateReport:
        """What was gathered."""
        share = self._weight / max(self._weight.sum(), 1e-12)
        mean = share.mean()
        siblings, strangers = self._similarities()
        return GateReport(
            num_experts=self._num_experts,
            top_k=self._top_k,
            lists=self._lists,
            items=self._items,
            utilisation=share.tolist(),
            load=(self._chosen / max(self._items, 1)).tolist(),
            importance_variation=float(share.var() / mean**2) if mean else 0.0,
            dead=np.flatnonzero(share < DEAD_SHARE / self._num_experts).tolist(),
            entropy=self._entropy / max(self._items, 1),
            top_categories=self._tops(),
            sub_categories=self._subs(),
            siblings=siblings,
            strangers=strangers,
        )

    def _by_parent(self) -> dict[str, Array]:
        """Per top category the rows of its sub-categories, [children, N + 1], lists last."""
        found: dict[str, list[Array]] = {}
        for (parent, _), row in self._gates.items():
            found.setdefault(parent, []).append(row)
        rows = {parent: np.stack(of) for parent, of in found.items()}
        return dict(sorted(rows.items(), key=lambda entry: -entry[1][:, -1].sum()))

    def _tops(self) -> list[CategoryGate]:
        found = []
        for parent, rows in self._by_parent().items():
            total = rows.sum(axis=0)
            cosines, pairs = _pairs(rows[:, :-1])
            means = (total[:-1] / total[-1]).tolist()
            similarity = cosines / pairs if pairs else None
            found.append(CategoryGate(parent, "", int(total[-1]), means, similarity))
        return found

    def _subs(self) -> list[CategoryGate]:
        order = {parent: place for place, parent in enumerate(self._by_parent())}
        gates = sorted(self._gates.items(), key=lambda entry: (order[entry[0][0]], -entry[1][-1]))
        return [
            CategoryGate(parent, child, int(row[-1]), (row[:-1] / row[-1]).tolist())
            for (parent, child), row in gates
        ]

    def _similarities(self) -> tuple[float | None, float | None]:
        parts = [_pairs(rows[:, :-1]) for rows in self._by_parent().values()]
        if not parts:
            return None, None
        inside, pairs = (sum(part) for part in zip(*parts, strict=True))
        every, all_pairs = _pairs(np.stack([row[:-1] for row in self._gates.values()]))
        outside = all_pairs - pairs
        return (
            inside / pairs if pairs else None,
            (every - inside) / outside if outside else None,
        )


def gate_names(model: tf.keras.Model) -> list[str]:
    """The gates that a model tells of: "" for a single one, else the tasks'; none without experts."""
    told = explanation_model(model)
    if told is None:
        return []
    return [name.removeprefix(_IDS).lstrip("_") for name in told.output if name.startswith(_IDS)]


def gate_choices(
    model: tf.keras.Model, dataset: tf.data.Dataset, schema: FeatureSchema
) -> Iterator[dict[str, GateBatch]]:
    """Runs the gates of a model over a data set; the towers are not computed.

    Args:
        model: one with experts, see `gate_names`.
        dataset: its elements begin with the raw features, as those of `build_evaluation_dataset` do.
        schema: names the hierarchy.

    Yields:
        Per element the choices by the gate's name.
    """
    told = explanation_model(model)
    if told is None:
        return
    outputs = {n: v for n, v in told.output.items() if n.startswith((_IDS, _WEIGHTS))}
    gates = tf.keras.Model(told.input, outputs)
    names = [n.removeprefix(_IDS) for n in outputs if n.startswith(_IDS)]

    @tf.function(input_signature=[dataset.element_spec[0]])
    def choose(features: Any) -> Any:
        return gates(features, training=False)

    tree = schema.hierarchy
    for features, *_ in dataset:
        found = choose(features)
        mask = features[MASK].numpy()
        parents = None if tree is None else strings(features[tree.parent])
        children = None if tree is None else strings(features[tree.child])
        yield {
            name.lstrip("_"): GateBatch(
                found[f"{_IDS}{name}"].numpy(),
                found[f"{_WEIGHTS}{name}"].numpy().astype(np.float64),
                mask,
                parents,
                children,
            )
            for name in names
        }


def gate_reports(
    model: tf.keras.Model, dataset: tf.data.Dataset, schema: FeatureSchema
) -> dict[str, GateReport]:
    """A report for each gate of a model; none without experts."""
    maps = {name: GateMap(num_experts(model)) for name in gate_names(model)}
    for batch in gate_choices(model, dataset, schema) if maps else ():
        for name, choice in batch.items():
            maps[name].add(choice)
    return {name: gathered.report() for name, gathered in maps.items()}
