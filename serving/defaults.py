"""What the local server does unless told otherwise. Apart from it, for a command line that starts at once."""

from __future__ import annotations

DEFAULT_PORT = 8500
DEFAULT_BATCH_SIZE = 4
