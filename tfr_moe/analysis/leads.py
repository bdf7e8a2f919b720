"""Why an item is ahead of the next one, and which single change would swap them, for any model."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.analysis.substitution import MAX_ORDERS, Ints, ShapleyValues, Substitutions
from tfr_moe.baselines import BaselineRun
from tfr_moe.metrics.per_list import Array, Floats
from tfr_moe.schema import MASK
from tfr_moe.scorers.base import (
    explanation_model,
    find_layer,
    item_vectors,
    num_experts,
    routing_in,
    routing_of,
)
from tfr_moe.scorers.mixture import MIXTURE
from tfr_moe.scorers.multitask import COMBINED, SCORES
from tfr_moe.training import LoadedRun

SumOf = Literal["experts", "tasks", ""]

SHARED = "shared expert"
_LOGITS = "expert_logits"
_STEPS = 8
_ROUNDING = 1e-6  # of scores in float32, which depend on the shape of the batch
_MAX_SCORED = 200_000  # items, over all pairs


class ScoreTerms:
    """Scores of a run with the terms that they are the sum of, where they are a sum.

    For `moe` and its family these are the experts' (Xiao et al. 2021, eq. 7), for several tasks
    those of the combined score, see `tfr_moe.layers.CombinedScore`. Else `names` is empty.
    """

    def __init__(self, loaded: LoadedRun | BaselineRun):
        self.sum_of: SumOf = ""
        self.names: list[str] = []
        if isinstance(loaded, BaselineRun):
            self._model: Callable[..., Any] = lambda features: {SCORES: loaded.score(features)}
            return
        ranker = loaded.served_model()
        outputs = (
            dict(ranker.output) if isinstance(ranker.output, dict) else {SCORES: ranker.output}
        )
        explained = explanation_model(loaded.model)
        if explained is not None:
            outputs |= routing_in(explained.output)
        mixture = find_layer(loaded.model, MIXTURE)
        if loaded.tasks:
            self.sum_of, self.names = "tasks", list(loaded.task_names)
            self._combination = ranker.get_layer(COMBINED)
        elif mixture is not None:
            self.sum_of = "experts"
            self.names = [f"expert {i}" for i in range(num_experts(loaded.model))]
            self.names += [SHARED] if mixture.shared is not None else []
            vectors, mask = item_vectors(loaded.model), loaded.model.input[MASK]
            outputs[_LOGITS] = mixture.towers(vectors, outputs["expert_ids"], mask=mask)
        self._model = functools.partial(tf.keras.Model(ranker.input, outputs), training=False)

    def outputs(self, features: dict[str, Array]) -> dict[str, Array]:
        """Scores [B, L], those of tasks, and the routing, by their names in an export."""
        outputs = self._model({name: tf.constant(value) for name, value in features.items()})
        return {name: np.asarray(value) for name, value in outputs.items()}

    def __call__(self, features: dict[str, Array]) -> Floats:
        """Features with the mask [B, L] -> [B, L, 1 + terms], the score first."""
        outputs = self.outputs(features)
        scores = outputs[SCORES].astype(np.float64)
        if self.sum_of == "tasks":
            by_task = {name: outputs[f"{SCORES}_{name}"] for name in self.names}
            terms = self._combination.terms(by_task)
            return np.stack([scores, *(np.asarray(terms[name]) for name in self.names)], axis=-1)
        if self.sum_of == "experts":
            ids, weights = routing_of(outputs)[""]
            if ids.ndim == 2:
                ids, weights = ids[:, np.newaxis], weights[:, np.newaxis]
            parts = outputs[_LOGITS].astype(np.float64) * weights
            values = np.zeros([*scores.shape, 1 + len(self.names)])
            np.put_along_axis(values, 1 + np.broadcast_to(ids, parts.shape), parts, axis=-1)
            if SHARED in self.names:
                values[..., -1] = scores - parts.sum(axis=-1)
            values[..., 0] = scores
            return values
        return scores[..., np.newaxis]


@dataclass(frozen=True)
class FeatureShare:
    """What a feature contributes to the lead of an item over the next one, and through which terms.

    `ahead` and `behind` are its values in the two items.
    """

    feature: str
    ahead: Any
    behind: Any
    share: float
    by_term: dict[str, float]


@dataclass(frozen=True)
class Lead:
    """The lead of an item over the next one.

    Attributes:
        terms: term -> its contribution, largest first; they add up to the lead. Empty where the
            score is no sum.
        features: the features in which the items differ, largest share first. Their shares and
            `position` add up to the lead.
        position: lead of an item with the features of the next one, at its own position, over
            the next one; 0 where the score of an item does not depend on the other items.
        swaps: feature -> the value of the next item that alone puts it ahead: that of the item
            ahead or, for a number, the first of eight equal steps towards it that suffices.
    """

    rank: int
    lead: float
    terms: dict[str, float]
    features: list[FeatureShare]
    position: float
    swaps: dict[str, Any]


class _Pair(NamedTuple):
    """Two items, the features in which they differ, and what to score to explain the lead.

    A change of the next item is a feature, its value, and the item that it is taken from.
    """

    ahead: int
    behind: int
    names: list[str]
    shares: ShapleyValues
    changes: list[tuple[str, Any, int]]


def explain_leads(
    items: Substitutions, order: Sequence[int], raw: Sequence[dict[str, Any]], terms: Sequence[str]
) -> list[Lead]:
    """Explains the lead of each item of `order`, best first, over the next one.

    `raw` are the items of the request, `terms` the names of the terms of the score.
    """
    pairs = [_pair(items, a, b, len(order) - 1) for a, b in itertools.pairwise(order)]
    requests = [_substituted(items, pair) for pair in pairs]
    if not requests:
        return []
    values, rivals = items.score(*(np.concatenate(part) for part in zip(*requests, strict=True)))
    ends = np.cumsum([len(request[0]) for request in requests])[:-1]
    parts = zip(np.split(values, ends), np.split(rivals, ends), strict=True)
    return [
        _lead(rank, items, pair, raw, terms, *part)
        for rank, (pair, part) in enumerate(zip(pairs, parts, strict=True), start=1)
    ]


def _pair(items: Substitutions, ahead: int, behind: int, pairs: int) -> _Pair:
    names = items.differing(ahead, behind)
    per_order = pairs * max(1, len(names)) * (1 if items.pointwise else len(items.values))
    orders = 2 * min(max(_MAX_SCORED // (2 * per_order), 1), MAX_ORDERS // 2)
    changes = [change for name in names for change in _changes(items, name, ahead, behind)]
    return _Pair(ahead, behind, names, ShapleyValues(len(names), orders), changes)


def _changes(
    items: Substitutions, name: str, ahead: int, behind: int
) -> Iterator[tuple[str, Any, int]]:
    """Values for the next item, from its own to that of the item ahead."""
    to, start = items.value(ahead, name), items.value(behind, name)
    if to.dtype.kind == "f" and to.size == 1 and np.isfinite([to, start]).all():
        between = np.linspace(start[0], to[0], _STEPS + 1, dtype=np.float64)[1:-1]
        if float(to[0]).is_integer() and float(start[0]).is_integer():
            between = np.setdiff1d(np.round(between), [start[0], to[0]])
            between = between if to[0] > start[0] else between[::-1]
        for value in between:
            yield name, float(value), items.add(behind, name, value)
    yield name, None, ahead


def _substituted(items: Substitutions, pair: _Pair) -> tuple[Ints, Ints, Ints]:
    """The arguments of `Substitutions.score`: sets of features of the first item, then changes."""
    sets = len(pair.shares.replaced)
    of_each = np.repeat([pair.ahead, pair.behind], [sets, len(pair.changes)])
    donors = np.tile(of_each[:, np.newaxis], (1, len(items.names)))
    columns = [items.names.index(name) for name in pair.names]
    donors[:sets, columns] = np.where(pair.shares.replaced, pair.behind, pair.ahead)
    for row, (name, _, donor) in enumerate(pair.changes, start=sets):
        donors[row, items.names.index(name)] = donor
    return of_each, pair.ahead + pair.behind - of_each, donors


def _lead(
    rank: int,
    items: Substitutions,
    pair: _Pair,
    raw: Sequence[dict[str, Any]],
    names: Sequence[str],
    values: Floats,
    rivals: Floats,
) -> Lead:
    """The lead of a pair from the values of `_substituted`."""
    ahead, behind = raw[pair.ahead], raw[pair.behind]
    sets = len(pair.shares.replaced)
    shares = pair.shares(values[:sets])
    gap = items.values[pair.ahead] - items.values[pair.behind]
    features = [
        FeatureShare(
            name, ahead.get(name), behind.get(name), float(share[0]), _by_name(names, share)
        )
        for name, share in zip(pair.names, shares, strict=True)
    ]
    swaps: dict[str, Any] = {}
    least = rivals[sets:] + _ROUNDING * np.maximum(1.0, np.abs(rivals[sets:]))
    enough = values[sets:, 0] > least
    for name, value, donor in itertools.compress(pair.changes, enough):
        swaps.setdefault(name, ahead.get(name) if donor == pair.ahead else value)
    return Lead(
        rank=rank,
        lead=float(gap[0]),
        terms=_by_name(names, gap),
        features=sorted(features, key=lambda feature: -abs(feature.share)),
        position=0.0 if items.pointwise else float(gap[0] - shares[:, 0].sum()),
        swaps=swaps,
    )


def _by_name(names: Sequence[str], values: Floats) -> dict[str, float]:
    """Terms that are not 0 in both items, largest first."""
    by_name = {name: float(value) for name, value in zip(names, values[1:], strict=True) if value}
    return dict(sorted(by_name.items(), key=lambda entry: -abs(entry[1])))
