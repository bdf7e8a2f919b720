"""Progress of a build, as far as it runs in this process.

Steps of a pipeline are serialized and can't hold a callback; with the embedded runner they run in the
process that started the build and find the listener here. On workers elsewhere nobody listens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, int, int], None]
"""Called with the stage (`read`: stored bytes; `write`: files), what is done, and the total."""

_listener: Callable[[str, int], None] | None = None


@contextmanager
def listening(progress: Progress | None, total_bytes: int, total_files: int) -> Iterator[None]:
    """Passes the advances of one build on to `progress` while the block runs."""
    global _listener
    totals = {"read": total_bytes, "write": total_files}
    done = dict.fromkeys(totals, 0)

    def listen(stage: str, amount: int) -> None:
        done[stage] = min(done[stage] + amount, totals[stage])
        if progress is not None:
            progress(stage, done[stage], totals[stage])

    _listener = listen
    try:
        yield
    finally:
        _listener = None


def advance(amount: int, stage: str = "read") -> None:
    """Tells the listener, if there is one, that so many bytes (or files) more are done."""
    if _listener is not None:
        _listener(stage, amount)
