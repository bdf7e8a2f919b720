"""KerasTuner's chief over gRPC, with leases: a worker that is gone gives its trial back.

KerasTuner's own chief waits for ever for the trial of a worker that was killed. Here workers give a
sign of life by asking for their trial (`GetTrial`, part of KerasTuner's protocol); who is silent for
longer than the lease loses the trial to the next worker that asks.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent import futures
from typing import Any

import grpc

from tfr_moe._compat import import_keras_tuner
from tfr_moe.errors import UserError

from .oracles import DurableOracle
from .say import Say

kt: Any = import_keras_tuner()
from keras_tuner.src import protos  # noqa: E402
from keras_tuner.src.distribute.oracle_chief import OracleServicer  # noqa: E402

TUNER_KEY = "tuner-id"
MAX_LOSSES = 3
_TICK = 0.2
_WAITING_FOR_WORKERS = 60.0
_STATUS = kt.engine.trial.TrialStatus


class LeasedServicer(OracleServicer):
    """Serves an oracle to workers and watches over who is at work.

    Args:
        oracle: the search algorithm.
        lease: seconds of silence after which a worker counts as gone.
        on_poison: called with a trial that lost `MAX_LOSSES` workers, before it ends as failed.
        say: takes a line for stderr.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        oracle: DurableOracle,
        lease: float,
        on_poison: Callable[[Any], None],
        say: Say,
        clock: Callable[[], float] = time.monotonic,
    ):
        super().__init__(oracle)
        self._lease = lease
        self._on_poison = on_poison
        self._say = say
        self._clock = clock
        self._lock = threading.RLock()
        self._losses: Counter[str] = Counter()
        # Workers of a chief that was killed have one lease to be heard of again.
        self.seen: dict[str, float] = dict.fromkeys(oracle.ongoing_trials, clock())
        self.last_call = clock()

    # The methods are named by KerasTuner's protocol.
    def CreateTrial(self, request: Any, context: Any) -> Any:  # noqa: N802
        """The next trial; IDLE, not STOPPED, as long as another worker might still lose its own."""
        with self._lock:
            self._hear(request.tuner_id)
            self.expire()
            trial = self.oracle.create_trial(request.tuner_id)
            if trial.status == _STATUS.STOPPED:
                if self.oracle.ongoing_trials:
                    trial.status = _STATUS.IDLE
                else:
                    self.stop_triggered = True
                    del self.seen[request.tuner_id]
            return protos.get_service().CreateTrialResponse(trial=trial.to_proto())

    def GetTrial(self, request: Any, context: Any) -> Any:  # noqa: N802
        """A trial of the worker's own; a sign of its life."""
        with self._lock:
            self._own(context, request.trial_id)
            return super().GetTrial(request, context)

    def UpdateTrial(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Takes the metrics of a trial from the worker that has it."""
        with self._lock:
            self._own(context, request.trial_id)
            return super().UpdateTrial(request, context)

    def EndTrial(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Ends a trial of the worker that has it; again, if the first answer was lost."""
        with self._lock:
            if request.trial.trial_id not in self.oracle.end_order:
                self._own(context, request.trial.trial_id)
            return super().EndTrial(request, context)

    def _own(self, context: Any, trial_id: str) -> None:
        tuner_id = dict(context.invocation_metadata()).get(TUNER_KEY, "")
        self._hear(tuner_id)
        if not self.oracle.reclaim(tuner_id, trial_id):
            context.abort(
                grpc.StatusCode.FAILED_PRECONDITION, f"trial {trial_id} is not {tuner_id}'s"
            )

    def _hear(self, tuner_id: str) -> None:
        self.seen[tuner_id] = self.last_call = self._clock()

    def expire(self) -> None:
        """Puts back the trials of workers that have been silent for longer than the lease."""
        with self._lock:
            now = self._clock()
            for tuner_id, heard in list(self.seen.items()):
                if now - heard > self._lease:
                    self.lose(tuner_id)

    def lose(self, tuner_id: str) -> None:
        """Counts a worker as gone and puts its trial back."""
        with self._lock:
            self.seen.pop(tuner_id, None)
            trial_id = self.oracle.release(tuner_id)
            if trial_id is None:
                return
            self._losses[trial_id] += 1
            if self._losses[trial_id] < MAX_LOSSES:
                self._say(f"{tuner_id} is gone; trial {trial_id} will be taken up by another")
                return
            self._say(f"{tuner_id} is gone; trial {trial_id} lost {MAX_LOSSES} workers: failed")
            self._on_poison(self.oracle.trials[trial_id])
            self.oracle.abandon(trial_id)

    @property
    def done(self) -> bool:
        """Whether nothing is left to do and every worker that is alive knows it."""
        with self._lock:
            return self.stop_triggered and not self.oracle.ongoing_trials and not self.seen


class Chief:
    """The server around a servicer.

    Args:
        servicer: answers the workers.
        address: HOST:PORT to listen on; port 0 takes a free one.

    Raises:
        UserError: if the address cannot be bound.
    """

    def __init__(self, servicer: LeasedServicer, address: str):
        self.servicer = servicer
        # Else two chiefs could share the port, and workers would meet the one or the other.
        alone = [("grpc.so_reuseport", 0)]
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=1), options=alone)
        protos.get_service_grpc().add_OracleServicer_to_server(servicer, self._server)
        try:
            port = self._server.add_insecure_port(address)
        except RuntimeError:
            port = 0
        if not port:
            raise UserError(f"--oracle {address}: cannot be listened on; is another chief there?")
        self.address = f"{address.rpartition(':')[0]}:{port}"

    def run(self, say: Say, on_tick: Callable[[], None] = lambda: None) -> None:
        """Serves until the search is over and all workers have left.

        Args:
            say: takes a line for stderr.
            on_tick: called a few times a second.
        """
        servicer, told = self.servicer, time.monotonic()
        self._server.start()
        try:
            while not servicer.done:
                time.sleep(_TICK)
                servicer.expire()
                on_tick()
                now = time.monotonic()
                if not servicer.seen and now - max(told, servicer.last_call) > _WAITING_FOR_WORKERS:
                    told = now
                    say(f"chief at {self.address}: no worker has called for a minute; waiting")
        finally:
            # Lets the answer to the last worker out.
            self._server.stop(grace=1.0).wait()
