"""A client for ranking models behind TensorFlow Serving or the local server.

It never imports Keras, nor TensorFlow's Python API beyond what the protos of
tensorflow-serving-api bring.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple

import grpc
import numpy as np
from tensorflow_serving.apis import (
    get_model_status_pb2,
    model_service_pb2_grpc,
    prediction_service_pb2_grpc,
)

from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema

from .channel import open_channel
from .request import RequestEncoder, load_request
from .tensors import predict_request, to_array

__all__ = [
    "Expert",
    "RankedItem",
    "Ranking",
    "RankingClient",
    "RequestError",
    "VersionStatus",
    "load_request",
]


_TASK_SCORES = "scores_"


class RequestError(UserError):
    """A request that was not answered. `code` is the gRPC status code."""

    def __init__(self, message: str, code: grpc.StatusCode):
        super().__init__(message)
        self.code = code


class Expert(NamedTuple):
    """An expert that took part in a score, and its gate weight (those of a score add up to 1)."""

    id: int
    weight: float


@dataclass(frozen=True, slots=True)
class RankedItem:
    """One item of an answer.

    Attributes:
        index: its place in the request, the first is 0.
        score: the model's score; only differences within a list mean something.
        experts: who made the score, heaviest first; empty unless the gate works item by item.
        tasks: the score of each task, which `score` combines; empty for a model with one score.
    """

    index: int
    score: float
    experts: tuple[Expert, ...] = ()
    tasks: Mapping[str, float] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Ranking:
    """An answer.

    Attributes:
        model: the model's name.
        version: the version that answered.
        items: best first.
        experts: who made the scores of this list, heaviest first; empty for a model without
            experts and for one that chooses them item by item.
    """

    model: str
    version: int
    items: tuple[RankedItem, ...]
    experts: tuple[Expert, ...] = ()


class VersionStatus(NamedTuple):
    """A version of the model: its state (`AVAILABLE` answers) and why it failed, if it did."""

    version: int
    state: str
    error: str = ""


class RankingClient:
    """Asks a server to rank items.

    Args:
        target: `HOST:PORT`.
        model: the model's name.
        schema: the schema that the model was trained with; None asks the server for it before the
            first request.
        timeout: seconds within which an answer must come.
        version: a fixed version; by default the newest that the server has.

    Raises:
        UserError: if `target` has no port.

    Example:
        >>> client = RankingClient("localhost:8500", "shop", schema)  # doctest: +SKIP
        >>> answer = client.rank({"category": "toys"}, [{"price": 9.5}, {"price": 3}])  # doctest: +SKIP
        >>> [item.index for item in answer.items]  # doctest: +SKIP
        [1, 0]
    """

    def __init__(
        self,
        target: str,
        model: str,
        schema: FeatureSchema | None = None,
        *,
        timeout: float = 5.0,
        version: int | None = None,
    ):
        if ":" not in target:
            raise UserError(f"target {target!r}: must be HOST:PORT")
        self._target = target
        self._model = model
        self._version = version
        self._timeout = timeout
        self._schema = schema
        self._encoder: RequestEncoder | None = None
        self._channel = open_channel(target)
        self._prediction = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self._status = model_service_pb2_grpc.ModelServiceStub(self._channel)

    @property
    def schema(self) -> FeatureSchema:
        """The schema of the model's requests.

        Raises:
            RequestError: as `rank`, where the server has to be asked.
        """
        if self._schema is None:
            answer = self._call(self._prediction.Predict, self._request("schema", b""))
            text = bytes(to_array(answer.outputs["schema"])[0])
            self._schema = FeatureSchema.model_validate_json(text)
        return self._schema

    def rank(self, context: Mapping[str, Any], items: Sequence[Mapping[str, Any]]) -> Ranking:
        """Ranks items.

        Args:
            context: raw values of the context features.
            items: raw values of the example features, one mapping an item.

        Raises:
            UserError: for a request that does not fit the schema, before anything is sent.
            RequestError: if the server is not there, does not have the model, or refuses.
        """
        answer = self._predict("rank", context, items)
        outputs = {name: to_array(proto)[0] for name, proto in answer.outputs.items()}
        valid = int(outputs["valid"])
        ids, weights = outputs.get("expert_ids"), outputs.get("expert_weights")
        shared: tuple[Expert, ...] = ()
        own: list[tuple[Expert, ...]] = [()] * valid
        if valid and ids is not None and weights is not None:
            if ids.ndim == 1:
                shared = _experts(ids, weights)
            else:
                own = [_experts(ids[i], weights[i]) for i in range(valid)]
        order, scores = outputs["order"][:valid].tolist(), outputs["scores"][:valid].tolist()
        named = {
            name.removeprefix(_TASK_SCORES): values[:valid].tolist()
            for name, values in sorted(outputs.items())
            if name.startswith(_TASK_SCORES)
        }
        tasks = [{name: values[i] for name, values in named.items()} for i in range(valid)]
        ranked = tuple(RankedItem(*item) for item in zip(order, scores, own, tasks, strict=True))
        return Ranking(self._model, answer.model_spec.version.value, ranked, shared)

    def predict(
        self, context: Mapping[str, Any], items: Sequence[Mapping[str, Any]]
    ) -> list[float]:
        """The scores of the items in the order of the request. Arguments and errors as `rank`."""
        answer = self._predict("serving_default", context, items)
        return to_array(answer.outputs["scores"])[0, : len(items)].tolist()

    def status(self) -> list[VersionStatus]:
        """The versions of the model that the server knows, newest first.

        Raises:
            RequestError: if the server is not there or does not know the model.
        """
        request = get_model_status_pb2.GetModelStatusRequest()
        request.model_spec.name = self._model
        answer = self._call(self._status.GetModelStatus, request)
        state = get_model_status_pb2.ModelVersionStatus.State
        return [
            VersionStatus(entry.version, state.Name(entry.state), entry.status.error_message)
            for entry in answer.model_version_status
        ]

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def __enter__(self) -> RankingClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _predict(
        self, signature: str, context: Mapping[str, Any], items: Sequence[Mapping[str, Any]]
    ) -> Any:
        if self._encoder is None:
            self._encoder = RequestEncoder(self.schema)
        serialized = self._encoder.encode(context, items)
        return self._call(self._prediction.Predict, self._request(signature, serialized))

    def _request(self, signature: str, serialized: bytes) -> Any:
        request = predict_request(self._model, signature, [serialized])
        if self._version is not None:
            request.model_spec.version.value = self._version
        return request

    def _call(self, method: Any, request: Any) -> Any:
        try:
            return method(request, timeout=self._timeout)
        except grpc.RpcError as error:
            raise self._explained(error.code(), error.details()) from error

    def _explained(self, code: grpc.StatusCode, details: str | None) -> RequestError:
        reason = " ".join((details or code.name).split())
        if code == grpc.StatusCode.UNAVAILABLE:
            message = f"no server at {self._target} ({reason})"
        elif code == grpc.StatusCode.DEADLINE_EXCEEDED:
            message = f"no answer from {self._target} within {self._timeout:g} s"
        elif code == grpc.StatusCode.NOT_FOUND:
            which = "" if self._version is None else f" version {self._version}"
            message = f"model {self._model!r}{which} is not served at {self._target} ({reason})"
        else:
            message = f"{self._target} refused the request to {self._model!r}: {reason}"
        return RequestError(message, code)


def _experts(ids: np.ndarray, weights: np.ndarray) -> tuple[Expert, ...]:
    heaviest_first = np.argsort(-weights, kind="stable")
    return tuple(Expert(int(ids[k]), float(weights[k])) for k in heaviest_first)
