"""Answers that are errors: the gRPC status codes and messages that TensorFlow Serving gives."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

from tfr_moe._compat import tf

_CODES = {code.value[0]: code for code in grpc.StatusCode}

log = logging.getLogger(__name__)


class RefusedError(Exception):
    """An answer that is an error: the gRPC status code and its message."""

    def __init__(self, code: grpc.StatusCode, message: str):
        super().__init__(message)
        self.code = code
        self.message = message


def refusal_of(error: tf.errors.OpError) -> RefusedError:
    """TensorFlow's errors carry gRPC's codes; the preamble of a traceback is cut off."""
    message = str(error.message).split("<stack traces unavailable>")[-1].strip()
    return RefusedError(_CODES.get(error.error_code, grpc.StatusCode.UNKNOWN), message)


def invalid(message: str) -> NoReturn:
    """Refuses with INVALID_ARGUMENT."""
    raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, message)


def precondition(message: str) -> NoReturn:
    """Refuses with FAILED_PRECONDITION."""
    raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, message)


def not_found(message: str) -> NoReturn:
    """Refuses with NOT_FOUND."""
    raise RefusedError(grpc.StatusCode.NOT_FOUND, message)


class BadMessages(grpc.aio.ServerInterceptor):
    """Refuses bytes that are no message of a method with INTERNAL, as gRPC in C++ does.

    gRPC in Python would say UNKNOWN, and write a traceback into the log for every one of them.
    """

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler:
        """Puts itself between gRPC and the methods of one request and one answer."""
        handler: Any = await continuation(handler_call_details)
        if handler is None or handler.unary_unary is None:
            return handler

        async def call(message: bytes, context: grpc.aio.ServicerContext) -> Any:
            try:
                request = handler.request_deserializer(message)
            except DecodeError:
                method = handler_call_details.method
                await context.abort(
                    grpc.StatusCode.INTERNAL,
                    f"the message is not one of {method} ({len(message)} bytes)",
                )
            return await handler.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(
            call, response_serializer=handler.response_serializer
        )


def answering(
    method: Callable[[Any, Any], Awaitable[Any]],
) -> Callable[[Any, Any, Any], Awaitable[Any]]:
    """Makes a gRPC method of `method(self, request)`: a `RefusedError` becomes the status of the call.

    `self.metrics` is told the outcome.
    """

    @functools.wraps(method)
    async def call(self: Any, request: Any, context: grpc.aio.ServicerContext) -> Any:
        started = time.perf_counter()
        code, message, answer = grpc.StatusCode.OK, "", None
        try:
            answer = await method(self, request)
        except RefusedError as refusal:
            code, message = refusal.code, refusal.message
        except Exception:
            log.exception("%s failed", method.__name__)
            code = grpc.StatusCode.INTERNAL
            message = "internal error; the server's log has more"
        spec = getattr(request, "model_spec", None)
        name = "" if spec is None else spec.name
        self.metrics.count(method.__name__, name, code.name, time.perf_counter() - started)
        if code != grpc.StatusCode.OK:
            await context.abort(code, message)
        return answer

    return call
