"""Answers that are errors: the gRPC status codes and messages that TensorFlow Serving gives."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

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


class Outcome(NamedTuple):
    """What a call comes to: a status code with its message, and the answer if the code is OK."""

    code: grpc.StatusCode
    message: str
    answer: Any = None


def outcome_of(method: str, make: Callable[[], Any]) -> Outcome:
    """Makes an answer; a `RefusedError` is the status of the call, and so is whatever goes wrong."""
    try:
        return Outcome(grpc.StatusCode.OK, "", make())
    except RefusedError as refusal:
        return Outcome(refusal.code, refusal.message)
    except Exception:
        log.exception("%s failed", method)
        return Outcome(grpc.StatusCode.INTERNAL, "internal error; the server's log has more")


def parsed(deserialize: Callable[[bytes], Any], message: bytes, method: str) -> Any:
    """The message of a request, from its bytes.

    Raises:
        RefusedError: INTERNAL for bytes that are none, as gRPC in C++ does.
    """
    try:
        return deserialize(message)
    except DecodeError as error:
        raise RefusedError(
            grpc.StatusCode.INTERNAL, f"the message is not one of {method} ({len(message)} bytes)"
        ) from error


class BadMessages(grpc.ServerInterceptor):
    """Refuses bytes that are no message of a method. gRPC would log a traceback for each of them."""

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler | None:
        """Puts itself between gRPC and the methods of one request and one answer."""
        handler: Any = continuation(handler_call_details)
        if handler is None or handler.unary_unary is None:
            return handler
        method = handler_call_details.method

        def call(message: bytes, context: grpc.ServicerContext) -> Any:
            try:
                request = parsed(handler.request_deserializer, message, method)
            except RefusedError as refusal:
                context.abort(refusal.code, refusal.message)
            return handler.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(
            call, response_serializer=handler.response_serializer
        )


def answering(method: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """Makes a gRPC method of `method(self, request)`: a `RefusedError` becomes the status of the call.

    `self.metrics` is told the outcome.
    """

    @functools.wraps(method)
    def call(self: Any, request: Any, context: grpc.ServicerContext) -> Any:
        started = time.perf_counter()
        outcome = outcome_of(method.__name__, lambda: method(self, request))
        spec = getattr(request, "model_spec", None)
        name = "" if spec is None else spec.name
        seconds = time.perf_counter() - started
        self.metrics.count(method.__name__, name, outcome.code.name, seconds)
        if outcome.code != grpc.StatusCode.OK:
            context.abort(outcome.code, outcome.message)
        return outcome.answer

    return call
