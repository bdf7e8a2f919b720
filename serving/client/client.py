"""A client that ranks items through a server."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import grpc

from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema

from .channel import MAX_ATTEMPTS, MAX_MESSAGE_BYTES, Tls, open_channel
from .protos import (
    GetModelStatusRequest,
    GetModelStatusResponse,
    PredictRequest,
    PredictResponse,
)
from .ranking import Ranking, RequestError, VersionStatus, outputs_of, ranking_of, status_of
from .request import RequestEncoder, predict_request

PREDICT = "/tensorflow.serving.PredictionService/Predict"
_STATUS = "/tensorflow.serving.ModelService/GetModelStatus"
_NO_DEADLINE = 1e9  # gRPC cannot represent an infinite one; this is 30 years

Items = Sequence[Mapping[str, Any]]


def check_timeout(timeout: Any) -> float:
    """The timeout in seconds; infinity waits as long as it takes.

    Raises:
        UserError: if it is not a number above 0.

    Example:
        >>> check_timeout(0)
        Traceback (most recent call last):
        tfr_moe.errors.UserError: timeout must be a number of seconds above 0. Received: timeout=0
    """
    is_number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
    if not is_number or not timeout > 0:
        raise UserError(
            f"timeout must be a number of seconds above 0. Received: timeout={timeout!r}"
        )
    return float(timeout)


def deadline(timeout: Any) -> float | None:
    """The timeout for gRPC: in seconds, or None for an infinite one.

    Raises:
        UserError: as `check_timeout`.

    Example:
        >>> deadline(5), deadline(float("inf"))
        (5.0, None)
    """
    seconds = check_timeout(timeout)
    return None if seconds > _NO_DEADLINE else seconds


class _Deadline:
    """The time by which an operation must be done, over all of its calls."""

    def __init__(self, timeout: float):
        self.timeout = timeout
        self._end = time.monotonic() + timeout

    def remaining(self) -> float | None:
        """Seconds left; None where there is no deadline."""
        limited = deadline(self.timeout) is not None
        return max(0.0, self._end - time.monotonic()) if limited else None


class RankingClient:
    """Ranks items through a server. Threads may share it.

    Args:
        target: `HOST:PORT`; the addresses of a name, or several IPv4 addresses with ports separated
            by commas, are used in turn.
        model: the model's name.
        schema: the schema that the model was trained with; None requests it from the server before
            the first list.
        timeout: seconds within which an operation must be answered, retries included; infinity for
            no deadline.
        version: a fixed version; by default the newest that the server has.
        label: or the version that has this label on the server, such as `stable`.
        tls: encrypts the connection; None sends everything in clear text.
        metadata: sent with every request, such as a token.
        attempts: maximum number of attempts while the server is UNAVAILABLE, with growing pauses.
            Other errors are not retried.
        max_message_bytes: the largest request and answer.
        recorder: called with each list's request and answer, such as a `RequestRecorder`.

    Raises:
        UserError: if an argument is invalid.

    Example:
        >>> client = RankingClient("localhost:8500", "shop", schema)  # doctest: +SKIP
        >>> items = [{"price": 9.5}, {"price": 3}]
        >>> answer = client.rank({"category": "toys"}, items)  # doctest: +SKIP
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
        label: str | None = None,
        tls: Tls | None = None,
        metadata: Mapping[str, str] | None = None,
        attempts: int = MAX_ATTEMPTS,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        recorder: Callable[[Any, Any], None] | None = None,
    ):
        if version is not None and label is not None:
            raise UserError(
                f"give a version or a label, not both. Received: version={version}, label={label!r}"
            )
        self._timeout = check_timeout(timeout)
        self._target = target
        self._model = model
        self._version = version
        self._label = label
        self._metadata = tuple((metadata or {}).items())
        self._max_message_bytes = max_message_bytes
        self._recorder = recorder
        self._encoder = None if schema is None else RequestEncoder(schema)
        self._channel = open_channel(
            target, tls=tls, attempts=attempts, max_message_bytes=max_message_bytes
        )
        self._predict = self._channel.unary_unary(
            PREDICT, PredictRequest.SerializeToString, PredictResponse.FromString
        )
        self._get_status = self._channel.unary_unary(
            _STATUS, GetModelStatusRequest.SerializeToString, GetModelStatusResponse.FromString
        )

    @property
    def schema(self) -> FeatureSchema:
        """The schema of the model's requests.

        Raises:
            RequestError: as `rank`, where the schema comes from the server.
        """
        return self._request_encoder(_Deadline(self._timeout)).schema

    def rank(
        self, context: Mapping[str, Any], items: Items, *, timeout: float | None = None
    ) -> Ranking:
        """Ranks items.

        Args:
            context: raw values of the context features.
            items: raw values of the example features, one mapping per item.
            timeout: seconds for this request instead of the client's.

        Raises:
            UserError: for a request that does not fit the schema or exceeds `max_message_bytes`;
                nothing is sent.
            RequestError: if the server cannot be reached, does not have the model, or rejects the
                request.
        """
        return ranking_of(self._model, self._send_list("rank", context, items, timeout))

    def predict(
        self, context: Mapping[str, Any], items: Items, *, timeout: float | None = None
    ) -> list[float]:
        """The scores of the items in the order of the request. Arguments and errors as `rank`."""
        answer = self._send_list("serving_default", context, items, timeout)
        return outputs_of(answer, "scores")["scores"][0, : len(items)].tolist()

    def status(self) -> list[VersionStatus]:
        """The versions of the model that the server knows, newest first.

        Raises:
            RequestError: if the server cannot be reached or does not know the model.
        """
        request = GetModelStatusRequest()
        request.model_spec.name = self._model
        return status_of(self._call(self._get_status, request, _Deadline(self._timeout)))

    def health(self) -> bool:
        """Whether the server answers and has a version of the model available."""
        try:
            return any(version.state == "AVAILABLE" for version in self.status())
        except RequestError:
            return False

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

    def _send_list(
        self, signature: str, context: Mapping[str, Any], items: Items, timeout: float | None
    ) -> Any:
        """Sends one list to a signature and returns the `PredictResponse`."""
        deadline = _Deadline(self._timeout if timeout is None else check_timeout(timeout))
        serialized = self._request_encoder(deadline).encode(context, items)
        request = self._request(signature, serialized)
        if (size := request.ByteSize()) > self._max_message_bytes:
            raise UserError(
                f"the request for a list of {len(items)} items takes {size:,} bytes; "
                f"max_message_bytes allows {self._max_message_bytes:,}"
            )
        answer = self._call(self._predict, request, deadline)
        if self._recorder is not None:
            self._recorder(request, answer)
        return answer

    def _request_encoder(self, deadline: _Deadline) -> RequestEncoder:
        """The encoder of the schema, which is requested from the server where it was not given."""
        if self._encoder is None:
            answer = self._call(self._predict, self._request("schema", b""), deadline)
            text = bytes(outputs_of(answer, "schema")["schema"][0])
            self._encoder = RequestEncoder(FeatureSchema.model_validate_json(text))
        return self._encoder

    def _request(self, signature: str, serialized: bytes) -> Any:
        request = predict_request(self._model, signature, [serialized])
        if self._version is not None:
            request.model_spec.version.value = self._version
        elif self._label is not None:
            request.model_spec.version_label = self._label
        return request

    def _call(self, method: Callable[..., Any], request: Any, deadline: _Deadline) -> Any:
        try:
            return method(request, timeout=deadline.remaining(), metadata=self._metadata)
        except grpc.RpcError as error:
            raise self._request_error(error, deadline) from error

    def _request_error(self, error: grpc.RpcError, deadline: _Deadline) -> RequestError:
        code, details = error.code(), error.details()
        reason = " ".join((details or code.name).split())
        model = f"model {self._model!r}"
        if code == grpc.StatusCode.UNAVAILABLE:
            message = f"no server at {self._target} ({reason})"
        elif code == grpc.StatusCode.DEADLINE_EXCEEDED:
            message = f"no answer from {self._target} within {deadline.timeout:g} s"
        elif code == grpc.StatusCode.NOT_FOUND:
            which = "" if self._version is None else f" version {self._version}"
            message = f"{model}{which} is not served at {self._target} ({reason})"
        else:
            message = f"{self._target} rejected the request to {model}: {reason}"
        return RequestError(message, code)
