"""Opens the connection to a server: addresses, keep-alive, retries and message limits."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from ipaddress import AddressValueError, IPv4Address

import grpc

from tfr_moe.errors import UserError

MAX_MESSAGE_BYTES = 64 * 2**20
"""gRPC's default limit is 4 MB, which a list of a few thousand items exceeds."""

MESSAGE_LIMITS = [
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
]
_OPTIONS = [
    *MESSAGE_LIMITS,
    # By default only while requests are running: servers close connections that ping more often.
    ("grpc.keepalive_time_ms", 60_000),
    # Also limits how long sent data may stay unacknowledged, so that dead connections end soon.
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    ("grpc.enable_http_proxy", 0),
    # gRPC retries only what it has buffered, by default up to 256 kB.
    ("grpc.per_rpc_retry_buffer_size", MAX_MESSAGE_BYTES),
]
_RETRIES = {
    "name": [{}],
    "retryPolicy": {
        "maxAttempts": 5,  # gRPC's maximum
        "initialBackoff": "0.1s",
        "maxBackoff": "1s",
        "backoffMultiplier": 2,
        # The one status that means that nothing was done.
        "retryableStatusCodes": ["UNAVAILABLE"],
    },
}


def address_of(target: str) -> str:
    """The address that gRPC resolves: several, separated by commas, must be IPv4 addresses."""
    if target.startswith(("dns:", "ipv4:", "ipv6:", "unix:", "xds:")):
        return target
    parts = [part.strip() for part in target.split(",")]
    for part in parts:
        host, _, port = part.rpartition(":")
        if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise UserError(f"target {target!r}: must be HOST:PORT, with a port of 1 to 65535")
        try:
            if len(parts) > 1:
                IPv4Address(host)
        except AddressValueError as error:
            raise UserError(
                f"target {target!r}: several addresses must be IPv4, but not {host!r}"
            ) from error
    return parts[0] if len(parts) == 1 else f"ipv4:{','.join(parts)}"


def headers_of(metadata: Mapping[str, str | bytes]) -> tuple[tuple[str, str | bytes], ...]:
    """Metadata for gRPC, which has names in lower case; a UserError for what it cannot send."""
    headers = tuple((name.lower(), value) for name, value in metadata.items())
    for name, value in headers:
        if not re.fullmatch(r"[0-9a-z_.-]+", name):
            raise UserError(f"metadata {name!r}: a name has letters, digits, '-', '_' and '.' only")
        binary = name.endswith("-bin") and isinstance(value, bytes)
        if not binary and not (isinstance(value, str) and re.fullmatch(r"[ -~]*", value)):
            raise UserError(f"metadata {name!r}: a value must be printable ASCII text")
    return headers


def open_channel(
    target: str, credentials: grpc.ChannelCredentials | None = None, retries: bool = True
) -> grpc.Channel:
    """Opens a channel to a gRPC name, whose addresses are used in turn, without HTTP proxies."""
    config = {
        "loadBalancingConfig": [{"round_robin": {}}],
        "methodConfig": [_RETRIES] if retries else [],
    }
    options = [*_OPTIONS, ("grpc.service_config", json.dumps(config))]
    address = address_of(target)
    if credentials is None:
        return grpc.insecure_channel(address, options=options)
    return grpc.secure_channel(address, credentials, options=options)
