"""A client that ranks items through a server, and a recorder of its requests."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc

from tfr_moe.elwc.wire import framed
from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema

from .channel import MAX_MESSAGE_BYTES, headers_of, open_channel
from .protos import (
    STATES,
    GetModelStatusRequest,
    GetModelStatusResponse,
    PredictRequest,
    PredictResponse,
)
from .ranking import Ranking, RequestError, VersionStatus, outputs_of, ranking_of
from .request import RequestEncoder, predict_request, prediction_log

PREDICT = "/tensorflow.serving.PredictionService/Predict"
_STATUS = "/tensorflow.serving.ModelService/GetModelStatus"
_NO_DEADLINE = 1e9  # gRPC cannot represent an infinite one; this is 30 years

Items = Sequence[Mapping[str, Any]]


def seconds_or_none(timeout: Any) -> float | None:
    """The timeout for gRPC: in seconds, or None for infinity; a UserError unless it is above 0."""
    is_number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
    if not is_number or not timeout > 0:
        raise UserError(
            f"timeout must be a number of seconds above 0. Received: timeout={timeout!r}"
        )
    return None if timeout > _NO_DEADLINE else float(timeout)


class RankingClient:
    """Ranks items through a server. Threads may share it.

    Requests are sent up to 5 times while the server is UNAVAILABLE, with growing pauses. Requests
    and answers may have up to 64 MB.

    Args:
        target: `HOST:PORT`; the addresses of a name, or several IPv4 addresses with ports separated
            by commas, are used in turn.
        model: the model's name.
        schema: the schema that the model was trained with; None requests it from the server before
            the first list.
        timeout: seconds within which a call must be answered, retries included; infinity for no
            deadline.
        version: a fixed version; by default the newest that the server has.
        label: or the version that has this label on the server, such as `stable`.
        credentials: of `grpc.ssl_channel_credentials`, for TLS; None sends everything in clear
            text.
        metadata: sent with every request, such as a token.
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
        credentials: grpc.ChannelCredentials | None = None,
        metadata: Mapping[str, str] | None = None,
        recorder: Callable[[Any, Any], None] | None = None,
    ):
        if version is not None and label is not None:
            raise UserError(
                f"give a version or a label, not both. Received: version={version}, label={label!r}"
            )
        self._timeout = seconds_or_none(timeout)
        self._target = target
        self._model = model
        self._version = version
        self._label = label
        self._metadata = headers_of(metadata or {})
        self._recorder = recorder
        self._encoder = None if schema is None else RequestEncoder(schema)
        self._channel = open_channel(target, credentials)
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
        return self._request_encoder(self._timeout).schema

    def rank(
        self, context: Mapping[str, Any], items: Items, *, timeout: float | None = None
    ) -> Ranking:
        """Ranks items.

        Args:
            context: raw values of the context features.
            items: raw values of the example features, one mapping per item.
            timeout: seconds for this request instead of the client's.

        Raises:
            UserError: for a request that does not fit the schema or is too large; nothing is sent.
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
        answer = self._call(self._get_status, request, self._timeout)
        return [
            VersionStatus(
                each.version, STATES.get(each.state, "UNKNOWN"), each.status.error_message
            )
            for each in answer.model_version_status
        ]

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

    def __exit__(self, *error: object) -> None:
        self.close()

    def _send_list(
        self, signature: str, context: Mapping[str, Any], items: Items, timeout: float | None
    ) -> Any:
        """Sends one list to a signature and returns the `PredictResponse`."""
        limit = self._timeout if timeout is None else seconds_or_none(timeout)
        serialized = self._request_encoder(limit).encode(context, items)
        request = self._request(signature, serialized)
        if (size := request.ByteSize()) > MAX_MESSAGE_BYTES:
            raise UserError(
                f"the request for a list of {len(items)} items takes {size:,} bytes; allowed are "
                f"{MAX_MESSAGE_BYTES:,}"
            )
        answer = self._call(self._predict, request, limit)
        if self._recorder is not None:
            self._recorder(request, answer)
        return answer

    def _request_encoder(self, timeout: float | None) -> RequestEncoder:
        """The encoder of the schema, which is requested from the server where it was not given."""
        if self._encoder is None:
            answer = self._call(self._predict, self._request("schema", b""), timeout)
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

    def _call(self, method: Callable[..., Any], request: Any, timeout: float | None) -> Any:
        try:
            return method(request, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            code, codes = error.code(), grpc.StatusCode
            reason = " ".join((error.details() or code.name).split())
            limit = "" if timeout is None else f" within {timeout:g} s"
            which = "" if self._version is None else f" version {self._version}"
            messages = {
                codes.UNAVAILABLE: f"no server at {self._target} ({reason})",
                codes.DEADLINE_EXCEEDED: f"no answer from {self._target}{limit}",
                codes.NOT_FOUND: f"model {self._model!r}{which} is not served at {self._target} "
                f"({reason})",
            }
            other = f"{self._target} rejected the request to model {self._model!r}: {reason}"
            raise RequestError(messages.get(code, other), code) from error


class RequestRecorder:
    """Appends `PredictionLog`s to a TFRecord file, as warm-up files and request logs have them.

    TensorFlow Serving needs a log collector of one's own for that. A record is written with one
    call in append mode; threads may share a recorder, and processes need a file each.

    Args:
        path: the file; its folder exists.
        share: probability that a request is recorded.

    Raises:
        UserError: if the share is not in (0, 1].

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "requests.tfrecord"
        >>> recorder = RequestRecorder(path)
        >>> recorder(PredictRequest(), PredictResponse())  # of RankingClient(recorder=recorder)
        >>> path.stat().st_size  # 6 bytes and 16 of their frame
        22
    """

    def __init__(self, path: str | Path, share: float = 1.0):
        if not 0 < share <= 1:
            raise UserError(f"share must be above 0 and at most 1. Received: share={share}")
        self._path, self._share = Path(path), share
        self._lock = threading.Lock()

    def __call__(self, request: PredictRequest, response: PredictResponse) -> None:
        """Records a `PredictRequest` and its `PredictResponse`, or not."""
        with self._lock:
            if random.random() >= self._share:
                return
            try:
                with open(self._path, "ab", buffering=0) as file:
                    file.write(framed(prediction_log(request, response)))
            except OSError as error:
                raise UserError(f"{self._path}: cannot be written ({error.strerror})") from error
