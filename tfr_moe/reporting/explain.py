"""One query taken apart: what the gate chose, what each expert said, and what a score is made of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.analysis.groups import Array
from tfr_moe.baselines import BaselineRun
from tfr_moe.comparison import open_run
from tfr_moe.errors import UserError
from tfr_moe.schema import MASK
from tfr_moe.scorers.explain import call_inputs, explanation_model
from tfr_moe.scorers.multitask import SCORES
from tfr_moe.serving.parsing import RequestParser
from tfr_moe.serving.request import RequestEncoder, load_request
from tfr_moe.training import LoadedRun

_IDS, _WEIGHTS = "expert_ids", "expert_weights"


@dataclass(frozen=True)
class Choice:
    """An expert that a gate chose.

    Attributes:
        expert: its number.
        weight: P_i.
    """

    expert: int
    weight: float


@dataclass(frozen=True)
class Contribution:
    """What an expert adds to an item's score.

    Attributes:
        expert: its number.
        weight: P_i.
        logit: E_i(X), what the expert says of the item.
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
        index: its place in the request, from 0.
        score: of the model.
        tasks: per task its score; empty for a model of one task.
        gates: per gate the item's own choice; empty where all items of a list share it.
        contributions: the parts of the score by expert, heaviest weight first; empty where the score is no
            weighted sum of experts.
        rest: what is left of the score without the contributions, such as that of a shared expert.
        idle: per expert that was not chosen, by number, what it would have said.
        item: the item as it was asked.
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
        context: as it was asked.
        gates: per gate the choice for the list; "" for the only one; empty without experts, or where
            items choose by themselves.
        gate_logits: clean logits of all experts, where the one gate is per list.
        items: best first.
        note: what can't be told of this model; empty where all can.
    """

    run: str
    model: str
    context: dict[str, Any]
    gates: dict[str, list[Choice]]
    gate_logits: list[float]
    items: list[ExplainedItem]
    note: str


def explain_request(run: str | Path, request: str | Path) -> Explanation:
    r"""Explains the answer of a run to a request.

    Of `moe` and its family the score of an item is taken apart into its terms (eq. 7),

    $$ \hat{y} = \sum_{i \in U_{topK}} P_i(x^{sc}) E_i(X) $$

    Args:
        run: folder of a finished run of any model.
        request: JSON file, as `tfr-moe rank` takes it.

    Raises:
        UserError: for a run or a request that doesn't fit.
    """
    loaded = open_run(run)
    asked = load_request(request, loaded.schema)
    if not asked.items:
        raise UserError(f"request {request}: has no items to explain")
    record = RequestEncoder(loaded.schema).encode(asked.context, asked.items)
    features = RequestParser(loaded.schema).lists(tf.constant([record]))
    told = _told(loaded, features)
    scores = told[SCORES][0]
    order = np.argsort(-scores, kind="stable")
    choices = {
        name.removeprefix(_IDS).lstrip("_"): (told[name], told[name.replace(_IDS, _WEIGHTS)])
        for name in told
        if name.startswith(_IDS)
    }
    items = []
    for rank, index in enumerate(order, start=1):
        parts, rest, idle = _parts(told, index)
        items.append(
            ExplainedItem(
                rank=rank,
                index=int(index),
                score=float(scores[index]),
                tasks={
                    name.removeprefix(f"{SCORES}_"): float(values[0, index])
                    for name, values in told.items()
                    if name.startswith(f"{SCORES}_")
                },
                gates={
                    name: _choice(ids[0, index], weights[0, index])
                    for name, (ids, weights) in choices.items()
                    if ids.ndim == 3
                },
                contributions=parts,
                rest=rest,
                idle=idle,
                item=dict(asked.items[index]),
            )
        )
    return Explanation(
        run=str(run),
        model=loaded.config.model,
        context=asked.context,
        gates={
            name: _choice(ids[0], weights[0])
            for name, (ids, weights) in choices.items()
            if ids.ndim == 2
        },
        gate_logits=told["gate_logits"][0].tolist() if "gate_logits" in told else [],
        items=items,
        note=_note(choices, told),
    )


def _note(choices: Any, told: dict[str, Array]) -> str:
    if not choices:
        return "The model has no experts: there is nothing to take a score apart into."
    if "expert_logits" not in told:
        return "Scores are no weighted sum of the experts: further layers stand between them."
    return ""


def _told(loaded: LoadedRun | BaselineRun, features: Any) -> dict[str, Array]:
    """Scores, choices of the gates, and where there are such the logits of gate and experts."""
    if isinstance(loaded, BaselineRun):
        return {SCORES: np.asarray(loaded.score(features))}
    model = loaded.ranker()
    outputs = dict(model.output) if isinstance(model.output, dict) else {SCORES: model.output}
    explained = explanation_model(loaded.model)
    if explained is not None:
        outputs |= {n: v for n, v in explained.output.items() if n.startswith((_IDS, _WEIGHTS))}
        outputs |= _expert_logits(loaded.model)
    found = tf.keras.Model(model.input, outputs)(features, training=False)
    return {name: np.asarray(value, dtype=None) for name, value in found.items()}


def _expert_logits(model: tf.keras.Model) -> dict[str, Any]:
    """`expert_logits` [B, L, N] of all experts, and `gate_logits` [B, N] where the gate is per list.

    Nothing for a model whose score is not the weighted sum of its experts' logits.
    """
    from tfr_moe.layers.mixture import CategoryMixtureOfExperts

    for layer in model.layers:
        if not isinstance(layer, CategoryMixtureOfExperts) or layer.num_outputs > 1:
            continue
        inputs, *seen = call_inputs(layer)
        found = {"expert_logits": layer.towers(inputs, None, mask=model.input[MASK])}
        if len(seen[0].shape) == 2:
            found["gate_logits"] = layer.decide(*seen).logits
        return found
    return {}


def _choice(ids: Array, weights: Array) -> list[Choice]:
    return [Choice(int(i), float(w)) for i, w in zip(ids, weights, strict=True)]


def _parts(
    told: dict[str, Array], index: int
) -> tuple[list[Contribution], float, dict[int, float]]:
    """The terms of an item's score, what they leave, and what idle experts would have said."""
    if "expert_logits" not in told:
        return [], 0.0, {}
    logits = told["expert_logits"][0, index].astype(np.float64)
    ids, weights = told[_IDS][0], told[_WEIGHTS][0]
    if ids.ndim == 2:
        ids, weights = ids[index], weights[index]
    parts = [
        Contribution(int(i), float(w), float(logits[i]), float(w * logits[i]))
        for i, w in zip(ids, weights, strict=True)
    ]
    rest = float(told[SCORES][0, index]) - sum(part.part for part in parts)
    idle = {i: float(logits[i]) for i in range(len(logits)) if i not in ids}
    return parts, rest, idle
