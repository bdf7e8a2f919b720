"""The answers of a server as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import grpc
import numpy as np

from tfr_moe.errors import UserError

from .protos import TENSOR_TYPES

_RANKING = ("valid", "order", "scores")
_TASK_SCORES = "scores_"
_EXPERT_IDS = "expert_ids"


class RequestError(UserError):
    """A request that failed. `code` is the gRPC status code."""

    def __init__(self, message: str, code: grpc.StatusCode):
        super().__init__(message)
        self.code = code


# Not frozen, which would take three times as long to create; an answer has one per item or more.
@dataclass(slots=True)
class Expert:
    """An expert and its gate weight; the weights of a score sum to 1."""

    id: int
    weight: float


@dataclass(slots=True)
class RankedItem:
    """One item of an answer.

    Attributes:
        index: its position in the request, from 0.
        score: the model's score; comparable within a list only.
        experts: the experts of the score, largest weight first; empty unless the gate is
            item-level.
        tasks: the score of each task, which `score` combines; empty for a model with one score.
        task_experts: as `experts`, by task, where each task has an item-level gate.
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
        experts: the experts of this list, largest weight first; empty for a model without experts
            or with an item-level gate.
        task_experts: as `experts`, by task, where each task has its own gate.
    """

    model: str
    version: int
    items: tuple[RankedItem, ...]
    experts: tuple[Expert, ...] = ()
    task_experts: Mapping[str, tuple[Expert, ...]] = field(default_factory=dict)


class VersionStatus(NamedTuple):
    """A version of the model, its state (`AVAILABLE` can answer), and the error if it failed."""

    version: int
    state: str
    error: str = ""


def to_array(proto: Any) -> np.ndarray:
    """Reads a `TensorProto` of float32, int32 or strings, in either form that servers send."""
    if proto.dtype not in TENSOR_TYPES:
        raise TypeError(f"tensors of type {proto.dtype} are not supported")
    field, dtype = TENSOR_TYPES[proto.dtype]
    shape = [dim.size for dim in proto.tensor_shape.dim]
    if proto.tensor_content:
        return np.frombuffer(proto.tensor_content, dtype).reshape(shape)
    values = np.array(getattr(proto, field)[:], dtype)
    missing = math.prod(shape) - len(values)
    if missing > 0:  # equal values at the end may be sent once
        values = np.concatenate([values, np.repeat(values[-1:], missing)])
    return values.reshape(shape)


def outputs_of(answer: Any, *needed: str) -> dict[str, np.ndarray]:
    """The outputs of a `PredictResponse` by name; a RequestError if a needed one is missing."""
    outputs = {name: to_array(proto) for name, proto in answer.outputs.items()}
    for name in needed:
        if name not in outputs:
            spec = answer.model_spec
            raise RequestError(
                f"the answer of model {spec.name!r} ({spec.signature_name}) has no output "
                f"{name!r}; it has: {', '.join(sorted(outputs))}",
                grpc.StatusCode.UNKNOWN,
            )
    return outputs


def ranking_of(model: str, answer: Any) -> Ranking:
    """The answer of the signature `rank` for one list, without padding."""
    outputs = {name: array[0] for name, array in outputs_of(answer, *_RANKING).items()}
    version, valid = answer.model_spec.version.value, int(outputs["valid"])
    order, scores = outputs["order"][:valid].tolist(), outputs["scores"][:valid].tolist()
    if len(outputs) == len(_RANKING):
        return Ranking(model, version, tuple(map(RankedItem, order, scores)))
    tasks: dict[str, list[float]] = {}
    # By task, "" where all tasks share a gate.
    of_list: dict[str, tuple[Expert, ...]] = {}
    of_items: dict[str, list[tuple[Expert, ...]]] = {}
    for name, values in sorted(outputs.items()):
        if name.startswith(_TASK_SCORES):
            tasks[name.removeprefix(_TASK_SCORES)] = values[:valid].tolist()
        elif name.startswith(_EXPERT_IDS):
            task = name.removeprefix(_EXPERT_IDS).removeprefix("_")
            weights = outputs[name.replace("_ids", "_weights", 1)]
            if values.ndim == 2:
                rows = zip(values[:valid].tolist(), weights[:valid].tolist(), strict=True)
                of_items[task] = [tuple(map(Expert, *row)) for row in rows]
            elif valid:
                of_list[task] = tuple(map(Expert, values.tolist(), weights.tolist()))
    shared = of_items.pop("", [()] * valid)
    items = [
        RankedItem(
            order[i],
            scores[i],
            shared[i],
            {task: values[i] for task, values in tasks.items()},
            {task: experts[i] for task, experts in of_items.items()},
        )
        for i in range(valid)
    ]
    return Ranking(model, version, tuple(items), of_list.pop("", ()), of_list)
