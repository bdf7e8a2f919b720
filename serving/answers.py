"""What a server answers, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import grpc
import numpy as np

from tfr_moe.errors import UserError

from .messages import DATA_TYPES, STATES, SignatureDefMap
from .tensors import to_array

_RANKING = ("valid", "order", "scores")
_TASK_SCORES = "scores_"
_EXPERT_IDS = "expert_ids"


class RequestError(UserError):
    """A request that was not answered. `code` is the gRPC status code."""

    def __init__(self, message: str, code: grpc.StatusCode):
        super().__init__(message)
        self.code = code


class Expert(NamedTuple):
    """An expert that took part in a score, and its gate weight (those of a score add up to 1)."""

    id: int
    weight: float


# Not frozen: that takes three times as long to make, and an answer has one for each of its items.
@dataclass(slots=True)
class RankedItem:
    """One item of an answer.

    Attributes:
        index: its place in the request, the first is 0.
        score: the model's score; only differences within a list mean something.
        experts: who made the score, heaviest first; empty unless the gate works item by item.
        tasks: the score of each task, which `score` combines; empty for a model with one score.
        task_experts: as `experts`, by task, where each task has a gate that works item by item.
    """

    index: int
    score: float
    experts: tuple[Expert, ...] = ()
    tasks: Mapping[str, float] = field(default_factory=dict)
    task_experts: Mapping[str, tuple[Expert, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Ranking:
    """An answer.

    Attributes:
        model: the model's name.
        version: the version that answered.
        items: best first.
        experts: who made the scores of this list, heaviest first; empty for a model without
            experts and for one that chooses them item by item.
        task_experts: as `experts`, by task, where each task has a gate of its own.
    """

    model: str
    version: int
    items: tuple[RankedItem, ...]
    experts: tuple[Expert, ...] = ()
    task_experts: Mapping[str, tuple[Expert, ...]] = field(default_factory=dict)


class VersionStatus(NamedTuple):
    """A version of the model: its state (`AVAILABLE` answers) and why it failed, if it did."""

    version: int
    state: str
    error: str = ""


class Tensor(NamedTuple):
    """A tensor of a signature: its type (`string`, `float`, ...) and shape, None where it is open."""

    dtype: str
    shape: tuple[int | None, ...]


class Signature(NamedTuple):
    """A signature of a model: its inputs and outputs by name."""

    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]


def outputs_of(answer: Any, *needed: str) -> dict[str, np.ndarray]:
    """The outputs of a `PredictResponse` by name.

    Raises:
        RequestError: naming a needed one that is not there.
    """
    outputs = {name: to_array(proto) for name, proto in answer.outputs.items()}
    for name in needed:
        if name not in outputs:
            spec = answer.model_spec
            raise RequestError(
                f"the answer of model {spec.name!r} ({spec.signature_name}) has no output {name!r}; "
                f"it has: {', '.join(sorted(outputs))}",
                grpc.StatusCode.UNKNOWN,
            )
    return outputs


def ranking_of(model: str, answer: Any) -> Ranking:
    """The answer of the signature `rank` for one list, without what pads it.

    Raises:
        RequestError: if it is not such an answer.
    """
    outputs = {name: array[0] for name, array in outputs_of(answer, *_RANKING).items()}
    version, valid = answer.model_spec.version.value, int(outputs["valid"])
    order, scores = outputs["order"][:valid].tolist(), outputs["scores"][:valid].tolist()
    if len(outputs) == len(_RANKING):
        return Ranking(model, version, tuple(map(RankedItem, order, scores)))
    tasks = {
        name.removeprefix(_TASK_SCORES): values[:valid].tolist()
        for name, values in sorted(outputs.items())
        if name.startswith(_TASK_SCORES)
    }
    gates = {name: _experts(outputs, name, valid) for name in sorted(outputs) if _is_gate(name)}
    shared, own = gates.pop(_EXPERT_IDS, ((), [()] * valid))
    by_task = {name.removeprefix(f"{_EXPERT_IDS}_"): found for name, found in gates.items()}
    items = [
        RankedItem(
            order[i],
            scores[i],
            own[i],
            {task: values[i] for task, values in tasks.items()},
            {task: each[i] for task, (_, each) in by_task.items() if each[i]},
        )
        for i in range(valid)
    ]
    of_list = {task: whole for task, (whole, _) in by_task.items() if whole}
    return Ranking(model, version, tuple(items), shared, of_list)


def merged(parts: Sequence[tuple[int, Ranking]]) -> Ranking:
    """The ranking of a list whose parts were ranked one by one, each given with its first place."""
    items = [
        replace(item, index=start + item.index) for start, part in parts for item in part.items
    ]
    items.sort(key=lambda item: (-item.score, item.index))
    return replace(parts[0][1], items=tuple(items))


def status_of(answer: Any) -> list[VersionStatus]:
    """The versions of a `GetModelStatusResponse`, in its order."""
    return [
        VersionStatus(entry.version, STATES.get(entry.state, "UNKNOWN"), entry.status.error_message)
        for entry in answer.model_version_status
    ]


def signatures_in(answer: Any) -> dict[str, Signature]:
    """The signatures of a `GetModelMetadataResponse`."""
    definitions = SignatureDefMap.FromString(answer.metadata["signature_def"].value)
    return {
        name: Signature(_tensors(definition.inputs), _tensors(definition.outputs))
        for name, definition in sorted(definitions.signature_def.items())
    }


def _tensors(infos: Mapping[str, Any]) -> dict[str, Tensor]:
    return {
        name: Tensor(
            DATA_TYPES.get(info.dtype, f"type {info.dtype}"),
            tuple(None if dim.size < 0 else dim.size for dim in info.tensor_shape.dim),
        )
        for name, info in sorted(infos.items())
    }


def _is_gate(name: str) -> bool:
    return name == _EXPERT_IDS or name.startswith(f"{_EXPERT_IDS}_")


def _experts(
    outputs: Mapping[str, np.ndarray], name: str, valid: int
) -> tuple[tuple[Expert, ...], list[tuple[Expert, ...]]]:
    """The experts of the list and of each item; the gate has chosen either those or these."""
    ids, weights = outputs[name], outputs[name.replace("_ids", "_weights", 1)]
    if ids.ndim == 1:
        return (_heaviest_first(ids, weights) if valid else ()), [()] * valid
    return (), [_heaviest_first(ids[i], weights[i]) for i in range(valid)]


def _heaviest_first(ids: np.ndarray, weights: np.ndarray) -> tuple[Expert, ...]:
    order = np.argsort(-weights, kind="stable")
    return tuple(Expert(int(ids[k]), float(weights[k])) for k in order)
