"""Opens the connection to a server: addresses, keep-alive, retries and message limits."""

from __future__ import annotations

import json
from typing import Any

import grpc

from tfr_moe.errors import UserError

MAX_MESSAGE_BYTES = 64 * 2**20
"""gRPC's default limit is 4 MB, which a list of a few thousand items exceeds."""

_MAX_ATTEMPTS = 5  # gRPC's maximum
MESSAGE_LIMITS = [
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
]
_OPTIONS = [
    *MESSAGE_LIMITS,
    # Pings only while requests are running: servers close connections that ping more often.
    ("grpc.keepalive_time_ms", 60_000),
    # Also limits how long sent data may stay unacknowledged, so that dead connections end soon.
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    ("grpc.enable_http_proxy", 0),
    # gRPC retries only what it has buffered, by default up to 256 kB.
    ("grpc.per_rpc_retry_buffer_size", MAX_MESSAGE_BYTES),
]


def address_of(target: str) -> str:
    """The address that gRPC resolves: several, separated by commas, must be IPv4 addresses."""
    if target.startswith(("dns:", "ipv4:", "ipv6:", "unix:", "xds:")):
        return target
    parts = [part.strip() for part in target.split(",")]
    for part in parts:
        if not part.rpartition(":")[2].isdecimal() or not part.rpartition(":")[0]:
            raise UserError(f"target {target!r}: must be HOST:PORT")
    return parts[0] if len(parts) == 1 else f"ipv4:{','.join(parts)}"


def _service_config(retries: bool) -> str:
    """gRPC's round robin over all addresses of the target, and its retries with backoff.

    Only UNAVAILABLE is retried, the one status that means that nothing was done.
    """
    config: dict[str, Any] = {"loadBalancingConfig": [{"round_robin": {}}]}
    if retries:
        policy = {
            "maxAttempts": _MAX_ATTEMPTS,
            "initialBackoff": "0.1s",
            "maxBackoff": "1s",
            "backoffMultiplier": 2,
            "retryableStatusCodes": ["UNAVAILABLE"],
        }
        config["methodConfig"] = [{"name": [{}], "retryPolicy": policy}]
    return json.dumps(config)


def open_channel(
    target: str, credentials: grpc.ChannelCredentials | None = None, retries: bool = True
) -> grpc.Channel:
    """Opens a channel to `target`, which may be a gRPC name; HTTP proxies are not used."""
    options = [*_OPTIONS, ("grpc.service_config", _service_config(retries))]
    address = address_of(target)
    if credentials is None:
        return grpc.insecure_channel(address, options=options)
    return grpc.secure_channel(address, credentials, options=options)
