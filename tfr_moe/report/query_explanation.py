"""Explains the scores of one query: gates, logits of the experts, terms of each score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from tfr_moe._compat import tf
from tfr_moe.baselines import BaselineRun
from tfr_moe.errors import UserError
from tfr_moe.evaluation.evaluate import open_run
from tfr_moe.metrics.per_list import Array
from tfr_moe.schema import MASK
from tfr_moe.scorers.base import (
    explanation_model,
    find_layer,
    item_vectors,
    name_routing,
    routing_of,
)
from tfr_moe.scorers.mixture import MIXTURE
from tfr_moe.scorers.multitask import SCORES
from tfr_moe.serving.client.request import Request, RequestEncoder, load_request
from tfr_moe.serving.export.parsing import RequestParser
from tfr_moe.training import LoadedRun
from tfr_moe.utils.terminal import Column, fitted_table

_EXPERT_LOGITS, _GATE_LOGITS = "expert_logits", "gate_logits"
_ROUNDING = 1e-3  # of scores in reduced precision, relative


@dataclass(frozen=True)
class Choice:
    """An expert that a gate selected.

    Attributes:
        expert: its number.
        weight: P_i.
    """

    expert: int
    weight: float


@dataclass(frozen=True)
class Contribution:
    """The term of an expert in an item's score.

    Attributes:
        expert: its number.
        weight: P_i.
        logit: E_i(X), the expert's score of the item.
        part: P_i E_i(X).
    """

    expert: int
    weight: float
    logit: float
    part: float


@dataclass(frozen=True)
class ExplainedItem:
    """An item of the query.

    Attributes:
        rank: 1 is first.
        index: its index in the request, from 0.
        score: of the model.
        tasks: score of each task; empty for a model of one task.
        gates: the item's own choice by gate; empty where all items of a list share it.
        contributions: the terms of the score by expert, heaviest weight first; empty where the
            score is not a weighted sum of experts.
        rest: the score minus the contributions, such as the term of a shared expert.
        idle: scores of the inactive experts, by number.
        item: the item of the request.
    """

    rank: int
    index: int
    score: float
    tasks: dict[str, float]
    gates: dict[str, list[Choice]]
    contributions: list[Contribution]
    rest: float
    idle: dict[int, float]
    item: dict[str, Any]


@dataclass(frozen=True)
class Explanation:
    """A query.

    Attributes:
        run: folder of the run.
        model: name of the model.
        context: of the request.
        gates: the choice for the list by gate, "" for a single gate; empty without experts, or
            where each item has its own choice.
        gate_logits: logits of all experts without noise, where a single gate selects them per list.
        items: best first.
        note: what can't be explained for this model, or empty.
    """

    run: str
    model: str
    context: dict[str, Any]
    gates: dict[str, list[Choice]]
    gate_logits: list[float]
    items: list[ExplainedItem]
    note: str


def explain_request(run: str | Path, request: str | Path) -> Explanation:
    r"""Explains how a run scores a request.

    For `moe` and its family the score of an item is split into its terms (Xiao et al. 2021, eq. 7),

    $$ \hat{y} = \sum_{i \in U_{topK}} P_i(x^{sc}) E_i(X) $$

    Args:
        run: folder of a finished run of any model.
        request: JSON file with `context` and `items`, as for `tfr-moe rank`.

    Raises:
        UserError: for an invalid run or request, or a request without items.
    """
    loaded = open_run(run)
    query = load_request(request, loaded.schema)
    if not query.items:
        raise UserError(f"request {request}: has no items to explain")
    return explain_query(loaded, query)


def explain_query(loaded: LoadedRun | BaselineRun, query: Request) -> Explanation:
    """Explains how a loaded run scores a request with at least one item; see `explain_request`."""
    record = RequestEncoder(loaded.schema).encode(query.context, query.items)
    outputs = _outputs(loaded, RequestParser(loaded.schema).lists(tf.constant([record])))
    # Without the axis of lists: [L, ...] by item, [...] by list.
    values = {name: value[0] for name, value in outputs.items()}
    scores = values[SCORES]
    routing = routing_of(values)
    items = []
    for rank, index in enumerate(np.argsort(-scores, kind="stable"), start=1):
        terms, rest, idle = _terms(values, index)
        items.append(
            ExplainedItem(
                rank=rank,
                index=int(index),
                score=float(scores[index]),
                tasks={
                    name.removeprefix(f"{SCORES}_"): float(value[index])
                    for name, value in values.items()
                    if name.startswith(f"{SCORES}_")
                },
                gates={
                    name: _choices(choice.expert_ids[index], choice.expert_weights[index])
                    for name, choice in routing.items()
                    if choice.expert_ids.ndim == 2
                },
                contributions=terms,
                rest=rest,
                idle=idle,
                item=dict(query.items[index]),
            )
        )
    note = ""
    if not routing:
        note = "The model has no experts: its scores have no terms."
    elif _EXPERT_LOGITS not in values:
        note = (
            "Scores are not a weighted sum of experts: the model has further layers on top of them."
        )
    return Explanation(
        run=str(loaded.path),
        model=loaded.config.model,
        context=query.context,
        gates={
            name: _choices(choice.expert_ids, choice.expert_weights)
            for name, choice in routing.items()
            if choice.expert_ids.ndim == 1
        },
        gate_logits=values[_GATE_LOGITS].tolist() if _GATE_LOGITS in values else [],
        items=items,
        note=note,
    )


def _outputs(loaded: LoadedRun | BaselineRun, features: Any) -> dict[str, Array]:
    """Scores and routing, and the logits of gate and experts where they make up the score."""
    if isinstance(loaded, BaselineRun):
        return {SCORES: np.asarray(loaded.score(features))}
    ranker = loaded.ranker()
    outputs = dict(ranker.output) if isinstance(ranker.output, dict) else {SCORES: ranker.output}
    explained = explanation_model(loaded.model)
    if explained is not None:
        outputs |= name_routing(routing_of(explained.output)) | _mixture_logits(loaded.model)
    values = tf.keras.Model(ranker.input, outputs)(features, training=False)
    return {name: np.asarray(value) for name, value in values.items()}


def _mixture_logits(model: tf.keras.Model) -> dict[str, tf.Tensor]:
    """`expert_logits` [B, L, N] of all experts, and `gate_logits` [B, N] for a gate per list.

    Empty for a model whose score is not the weighted sum of its experts' logits.
    """
    mixture = find_layer(model, MIXTURE)
    if mixture is None or mixture.num_outputs > 1:
        return {}
    logits = {
        _EXPERT_LOGITS: mixture.towers(item_vectors(model), None, mask=model.input[MASK]),
        _GATE_LOGITS: mixture.output[_GATE_LOGITS],
    }
    if len(logits[_GATE_LOGITS].shape) == 3:
        del logits[_GATE_LOGITS]
    return logits


def _choices(ids: Array, weights: Array) -> list[Choice]:
    return [Choice(int(i), float(w)) for i, w in zip(ids, weights, strict=True)]


def _terms(
    values: Mapping[str, Array], index: int
) -> tuple[list[Contribution], float, dict[int, float]]:
    """The terms of an item's score, the rest of the score, and the scores of inactive experts."""
    if _EXPERT_LOGITS not in values:
        return [], 0.0, {}
    logits = values[_EXPERT_LOGITS][index].astype(np.float64)
    ids, weights = routing_of(values)[""]
    if ids.ndim == 2:
        ids, weights = ids[index], weights[index]
    terms = [
        Contribution(int(i), float(w), float(logits[i]), float(w * logits[i]))
        for i, w in zip(ids, weights, strict=True)
    ]
    rest = float(values[SCORES][index]) - sum(term.part for term in terms)
    idle = {i: float(logits[i]) for i in range(len(logits)) if i not in ids}
    return terms, rest, idle


def render(explanation: Explanation, width: int | None = None) -> Iterator[RenderableType]:
    """Renders an explanation for the terminal: gates, scores with their terms, inactive experts.

    Args:
        explanation: of a query.
        width: columns of the terminal; fields of the items that do not fit are named below the
            table. None shows all.
    """
    for name, choices in explanation.gates.items():
        title = f"gate of {name}" if name else "gate"
        yield Text(f"{title}: experts (weight) {_listed(choices)}")
    if explanation.gate_logits:
        logits = ", ".join(f"{i}: {value:.3f}" for i, value in enumerate(explanation.gate_logits))
        yield Text(f"gate logits by expert: {logits}")
    terms = any(item.contributions for item in explanation.items)
    yield Text(
        f"{explanation.model}: {'score = sum of weight x expert logit' if terms else 'scores'}"
    )
    columns = _score_columns(explanation)
    names = dict.fromkeys(name for item in explanation.items for name in item.item)
    fields = [
        Column(name, [str(item.item.get(name, "")) for item in explanation.items], numeric=False)
        for name in names
    ]
    yield fitted_table([*columns, *fields], always=len(columns), width=width)
    if any(item.idle for item in explanation.items):
        yield Text("scores of the inactive experts:")
        for item in explanation.items:
            logits = ", ".join(f"#{expert} {logit:.3f}" for expert, logit in item.idle.items())
            yield Text(f"item {item.index}: {logits}")
    if explanation.note:
        yield Text(explanation.note)


def _listed(choices: list[Choice]) -> str:
    return ", ".join(f"{choice.expert} ({choice.weight:.3f})" for choice in choices)


def _score_columns(explanation: Explanation) -> list[Column]:
    """Rank, item and score, and what the score consists of."""
    items = explanation.items
    columns = [
        Column("rank", [str(item.rank) for item in items]),
        Column("item", [str(item.index) for item in items]),
        Column("score", [f"{item.score:.4f}" for item in items]),
    ]
    for task in items[0].tasks:
        columns.append(Column(task, [f"{item.tasks[task]:.4f}" for item in items]))
    if items[0].contributions:
        terms = ["\n".join(map(_term_text, item.contributions)) for item in items]
        columns.append(Column("#expert: weight x logit", terms))
    if any(abs(item.rest) > _ROUNDING * max(1.0, abs(item.score)) for item in items):
        columns.append(Column("rest", [f"{item.rest:+.3f}" for item in items]))
    for name in items[0].gates:
        title = f"gate of {name}" if name else "gate"
        experts = [_listed(item.gates[name]).replace(", ", "\n") for item in items]
        columns.append(Column(title, experts))
    return columns


def _term_text(term: Contribution) -> str:
    return f"#{term.expert}: {term.weight:.2f} x {term.logit:.3f} = {term.part:+.3f}"
