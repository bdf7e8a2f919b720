"""What the local server tells Prometheus."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, start_http_server
from prometheus_client.core import GaugeMetricFamily

from tfr_moe.errors import UserError

from .repository import Repository

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class ServerMetrics:
    """Requests by model, method and status; their seconds; the versions that are available.

    Names that no model has are counted together, so that they can't grow without end.
    """

    def __init__(self, repository: Repository):
        self._repository = repository
        self.registry = CollectorRegistry()
        self.registry.register(self)
        self._requests = Counter(
            "tfr_moe_requests",
            "Requests answered.",
            ["model", "method", "code"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "tfr_moe_request_seconds",
            "Seconds from the whole request to its answer.",
            ["model", "method"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        # `labels` checks and joins its arguments anew for every request.
        self._count_of = functools.cache(self._requests.labels)
        self._seconds_of = functools.cache(self._seconds.labels)

    def count(self, method: str, model: str, code: str, seconds: float) -> None:
        """Counts one request."""
        name = model if self._repository.knows(model) else "unknown"
        self._count_of(name, method, code).inc()
        self._seconds_of(name, method).observe(seconds)

    def collect(self) -> Iterator[Any]:
        """The versions at this moment, for the registry."""
        family = GaugeMetricFamily(
            "tfr_moe_version_available",
            "1 for a version that answers, 0 for one that failed or is gone.",
            labels=["model", "version"],
        )
        for name in self._repository.names():
            for version, state in self._repository.states(name).items():
                family.add_metric([name, str(version)], state.state == "AVAILABLE")
        yield family


def expose(metrics: ServerMetrics, host: str, port: int) -> Any:
    """Answers Prometheus over HTTP on every path; returns the server, which has `shutdown`.

    Raises:
        UserError: if the port can't be had.
    """
    try:
        server, _ = start_http_server(port, host, metrics.registry)
    except (OSError, OverflowError) as error:
        raise UserError(f"cannot listen on {host}:{port} for metrics: {error}") from error
    return server
