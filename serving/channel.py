"""What the client and the local server agree on about the connection."""

from __future__ import annotations

import grpc

MAX_MESSAGE_BYTES = 64 * 2**20
"""gRPC's own limit is 4 MB, which a list of some thousand items exceeds."""

MESSAGE_LIMITS = [
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
]


def open_channel(target: str) -> grpc.Channel:
    """An insecure channel to `HOST:PORT`, past any HTTP proxy of the environment."""
    return grpc.insecure_channel(target, options=[*MESSAGE_LIMITS, ("grpc.enable_http_proxy", 0)])
