"""A client for ranking models behind TensorFlow Serving or the local server.

It imports neither TensorFlow nor Keras, so that a web application can carry it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import grpc
import grpc.aio

from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema

from .answers import (
    Expert,
    RankedItem,
    Ranking,
    RequestError,
    Signature,
    Tensor,
    VersionStatus,
)
from .asking import METHODS, Asking, Call, Items, Steps
from .channel import MAX_ATTEMPTS, MAX_MESSAGE_BYTES, Tls, open_channel
from .request import load_request

__all__ = [
    "AsyncRankingClient",
    "Expert",
    "RankedItem",
    "Ranking",
    "RankingClient",
    "RequestError",
    "Signature",
    "Tensor",
    "Tls",
    "VersionStatus",
    "load_request",
]

T = TypeVar("T")
_HEALTH = "/grpc.health.v1.Health/Check"
_SERVING = b"\x08\x01"  # HealthCheckResponse: field 1, status, is SERVING


class _Client:
    """What both clients hold: the connection, the operations, and words for what goes wrong."""

    _kind: Any = grpc

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
        split: bool = False,
    ):
        if not timeout > 0:
            raise UserError(f"timeout must be more than 0 seconds, got {timeout:g}")
        self._asking = Asking(model, schema, version, label, max_message_bytes, split)
        self._target = target
        self._timeout = timeout
        self._metadata = tuple((metadata or {}).items())
        self._channel = open_channel(
            target,
            tls=tls,
            attempts=attempts,
            max_message_bytes=max_message_bytes,
            kind=self._kind,
        )
        self._methods = {
            method: self._channel.unary_unary(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.answer.FromString,
            )
            for method in METHODS
        }
        self._health = self._channel.unary_unary(_HEALTH)

    def _options(self, deadline: float) -> dict[str, Any]:
        return {"timeout": max(0.0, deadline - time.monotonic()), "metadata": self._metadata}

    def _deadline(self, timeout: float | None) -> float:
        return time.monotonic() + (self._timeout if timeout is None else timeout)

    def _explained(self, error: grpc.RpcError) -> RequestError:
        code, details = error.code(), error.details()
        reason = " ".join((details or code.name).split())
        model = f"model {self._asking.model!r}"
        if code == grpc.StatusCode.UNAVAILABLE:
            message = f"no server at {self._target} ({reason})"
        elif code == grpc.StatusCode.DEADLINE_EXCEEDED:
            message = f"no answer from {self._target} within {self._timeout:g} s"
        elif code == grpc.StatusCode.NOT_FOUND:
            version = self._asking.version
            which = "" if version is None else f" version {version}"
            message = f"{model}{which} is not served at {self._target} ({reason})"
        else:
            message = f"{self._target} refused the request to {self._asking.model!r}: {reason}"
        return RequestError(message, code)


class RankingClient(_Client):
    """Asks a server to rank items. Threads may share it.

    Args:
        target: `HOST:PORT`; of a name with several addresses, or of several IPv4 addresses with ports
            separated by commas, each is asked in turn.
        model: the model's name.
        schema: the schema that the model was trained with; None asks the server for it before the
            first request.
        timeout: seconds within which an answer must come, with all tries.
        version: a fixed version; by default the newest that the server has.
        label: or the version that has this label on the server, such as `stable`.
        tls: encrypts the connection; None sends everything in the clear.
        metadata: sent with every request, such as a token.
        attempts: how often a request is tried in all while the server is UNAVAILABLE, with growing
            pauses. Nothing else is tried again.
        max_message_bytes: no request or answer is larger.
        split: send a list that is beyond the limit in parts; only for models that score each item
            on its own, which is checked.

    Raises:
        UserError: if an argument is not what it should be.

    Example:
        >>> client = RankingClient("localhost:8500", "shop", schema)  # doctest: +SKIP
        >>> answer = client.rank({"category": "toys"}, [{"price": 9.5}, {"price": 3}])  # doctest: +SKIP
        >>> [item.index for item in answer.items]  # doctest: +SKIP
        [1, 0]
    """

    @property
    def schema(self) -> FeatureSchema:
        """The schema of the model's requests.

        Raises:
            RequestError: as `rank`, where the server has to be asked.
        """
        return self._run(self._asking.schema())

    def rank(
        self, context: Mapping[str, Any], items: Items, *, timeout: float | None = None
    ) -> Ranking:
        """Ranks items.

        Args:
            context: raw values of the context features.
            items: raw values of the example features, one mapping an item.
            timeout: seconds, other than those of the client.

        Raises:
            UserError: for a request that does not fit the schema or is too large, before anything is
                sent.
            RequestError: if the server is not there, does not have the model, or refuses.
        """
        return self._run(self._asking.rank(context, items), timeout)

    def predict(
        self, context: Mapping[str, Any], items: Items, *, timeout: float | None = None
    ) -> list[float]:
        """The scores of the items in the order of the request. Arguments and errors as `rank`."""
        return self._run(self._asking.predict(context, items), timeout)

    def status(self) -> list[VersionStatus]:
        """The versions of the model that the server knows, newest first.

        Raises:
            RequestError: if the server is not there or does not know the model.
        """
        return self._run(self._asking.status())

    def metadata(self) -> dict[str, Signature]:
        """The signatures of the model by name.

        Raises:
            RequestError: if the server is not there or does not have the model.
        """
        return self._run(self._asking.metadata())

    def health(self) -> bool:
        """Whether the server says that it is serving, by the gRPC health protocol.

        A server without that protocol (TensorFlow Serving needs a flag for it) is healthy if a version
        of the model is available.
        """
        try:
            return self._health(b"", **self._options(self._deadline(None))) == _SERVING
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.UNIMPLEMENTED:
                return False
        return _available(self.status())

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

    def _run(self, steps: Steps[T], timeout: float | None = None) -> T:
        deadline = self._deadline(timeout)
        try:
            calls = next(steps)
            while True:
                try:
                    answers = self._ask(calls, deadline)
                except grpc.RpcError as error:
                    calls = steps.throw(self._explained(error))
                else:
                    calls = steps.send(answers)
        except StopIteration as done:
            return done.value

    def _ask(self, calls: Sequence[Call], deadline: float) -> list[Any]:
        options = self._options(deadline)
        if len(calls) == 1:
            return [self._methods[calls[0].method](calls[0].message, **options)]
        sent = [self._methods[call.method].future(call.message, **options) for call in calls]
        try:
            return [future.result() for future in sent]
        finally:
            for future in sent:
                future.cancel()


class AsyncRankingClient(_Client):
    """`RankingClient` for asyncio: the same arguments, and the same methods as coroutines.

    To be made inside a running event loop.

    Example:
        >>> async def ask():
        ...     async with AsyncRankingClient("localhost:8500", "shop") as client:
        ...         return await client.rank({"category": "toys"}, [{"price": 9.5}, {"price": 3}])
        >>> answer = asyncio.run(ask())  # doctest: +SKIP
    """

    _kind = grpc.aio

    async def schema(self) -> FeatureSchema:
        """See `RankingClient.schema`."""
        return await self._run(self._asking.schema())

    async def rank(
        self, context: Mapping[str, Any], items: Items, *, timeout: float | None = None
    ) -> Ranking:
        """See `RankingClient.rank`."""
        return await self._run(self._asking.rank(context, items), timeout)

    async def predict(
        self, context: Mapping[str, Any], items: Items, *, timeout: float | None = None
    ) -> list[float]:
        """See `RankingClient.predict`."""
        return await self._run(self._asking.predict(context, items), timeout)

    async def status(self) -> list[VersionStatus]:
        """See `RankingClient.status`."""
        return await self._run(self._asking.status())

    async def metadata(self) -> dict[str, Signature]:
        """See `RankingClient.metadata`."""
        return await self._run(self._asking.metadata())

    async def health(self) -> bool:
        """See `RankingClient.health`."""
        try:
            return await self._health(b"", **self._options(self._deadline(None))) == _SERVING
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.UNIMPLEMENTED:
                return False
        return _available(await self.status())

    async def close(self) -> None:
        """Closes the connection."""
        await self._channel.close()

    async def __aenter__(self) -> AsyncRankingClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _run(self, steps: Steps[T], timeout: float | None = None) -> T:
        deadline = self._deadline(timeout)
        try:
            calls = next(steps)
            while True:
                try:
                    answers = await self._ask(calls, deadline)
                except grpc.RpcError as error:
                    calls = steps.throw(self._explained(error))
                else:
                    calls = steps.send(answers)
        except StopIteration as done:
            return done.value

    async def _ask(self, calls: Sequence[Call], deadline: float) -> list[Any]:
        options = self._options(deadline)
        sent = [self._methods[call.method](call.message, **options) for call in calls]
        try:
            return list(await asyncio.gather(*sent))
        finally:
            for call in sent:
                call.cancel()


def _available(versions: Sequence[VersionStatus]) -> bool:
    return any(version.state == "AVAILABLE" for version in versions)
