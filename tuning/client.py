"""A worker's side of the chief: KerasTuner's client that says who asks, waits, and shows signs of life."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import grpc

from tfr_moe._compat import import_keras_tuner
from tfr_moe.errors import UserError

from .chief import TUNER_KEY
from .trial import TrialLostError

kt: Any = import_keras_tuner()
from keras_tuner.src import protos  # noqa: E402
from keras_tuner.src.distribute.oracle_client import OracleClient  # noqa: E402

PATIENCE = 600.0


class _Fields(NamedTuple):
    method: str
    timeout: float | None
    metadata: Any
    credentials: Any
    wait_for_ready: bool | None
    compression: Any


class _CallDetails(_Fields, grpc.ClientCallDetails):
    """What gRPC wants of a changed call."""


class _Manners(grpc.UnaryUnaryClientInterceptor):
    """Names the worker in each call, and calls again while the chief is away.

    Raises:
        TrialLostError: where the chief says that the trial is another worker's.
        UserError: where the chief stays away for longer than the patience.
    """

    def __init__(self, address: str, tuner_id: str, patience: float):
        self._address = address
        self._tuner_id = tuner_id
        self._patience = patience

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        metadata = [*(details.metadata or ()), (TUNER_KEY, self._tuner_id)]
        deadline = time.monotonic() + self._patience
        while True:
            left = max(deadline - time.monotonic(), 0.1)
            call = continuation(
                _CallDetails(details.method, left, metadata, details.credentials, True, None),
                request,
            )
            code = call.code()
            if code == grpc.StatusCode.FAILED_PRECONDITION:
                raise TrialLostError(call.details())
            if code not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                return call
            if time.monotonic() >= deadline:
                raise UserError(
                    f"chief {self._address}: has not answered for {self._patience:.0f} s; the same "
                    "command goes on when it is back"
                )
            time.sleep(min(0.5, self._patience))


class ChiefClient(OracleClient):
    """The chief's oracle, as a worker sees it; reads KERASTUNER_ORACLE_IP, _PORT and _TUNER_ID.

    Args:
        oracle: a local oracle with the same settings.
        address: HOST:PORT of the chief.
        tuner_id: the worker's name, another one for each.
        patience: seconds to wait for a chief that is away.
    """

    def __init__(self, oracle: Any, address: str, tuner_id: str, patience: float = PATIENCE):
        super().__init__(oracle)
        manners = _Manners(address, tuner_id, patience)
        channel = grpc.intercept_channel(grpc.insecure_channel(address), manners)
        self.stub = protos.get_service_grpc().OracleStub(channel)


@contextmanager
def signs_of_life(client: Any, trial_id: str, lease: float) -> Iterator[Callable[[], None]]:
    """Tells the chief four times a lease that the trial is being worked on.

    Yields:
        A function that raises `TrialLostError` once the trial is another's, or once no sign has got
        through for a lease, after which it may be another's.
    """
    over = threading.Event()
    last = time.monotonic()
    lost = False

    def beat() -> None:
        nonlocal last, lost
        while not over.wait(lease / 4):
            sent = time.monotonic()
            try:
                client.get_trial(trial_id)
                last = sent
            except TrialLostError:
                lost = True
                return
            except (UserError, grpc.RpcError):
                continue

    def check() -> None:
        if lost or time.monotonic() - last > lease:
            raise TrialLostError(f"trial {trial_id}")

    thread = threading.Thread(target=beat, name="signs-of-life", daemon=True)
    thread.start()
    try:
        yield check
    finally:
        over.set()
