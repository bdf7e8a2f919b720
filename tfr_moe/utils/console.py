"""A progress bar for terminals, progress lines for files, plain log lines and warnings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

ProgressCallback = Callable[..., None]
"""Called with (done, total) and optionally the name of the stage: what `progress_bar` yields."""


_FIRST_LINE, _NEXT_LINE = 10.0, 30.0
"""Seconds until the first progress line in a file, and from one to the next."""


@contextmanager
def progress_bar(console: Console, description: str) -> Iterator[ProgressCallback]:
    """Shows a progress bar until the block ends, also by an exception.

    What is no terminal gets a line instead: ten seconds into each stage, then every thirty.

    Args:
        console: where to draw.
        description: text before the bar.

    Yields:
        A function `move(done, total=None, description=...)`.

    Example:
        >>> with progress_bar(Console(quiet=True), "sessions") as move:
        ...     move(1, 10)
    """
    if not console.is_terminal:
        yield _line_printer(console, description)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(description, total=None)

        def move(done: int, total: int | None = None, stage: str = description) -> None:
            progress.update(task, completed=done, total=total, description=stage)

        yield move


def _line_printer(console: Console, description: str) -> ProgressCallback:
    started = time.monotonic()
    due, last = started + _FIRST_LINE, 0

    def move(done: int, total: int | None = None, stage: str = description) -> None:
        nonlocal due, last
        now = time.monotonic()
        if done < last:  # another stage, such as the next epoch
            due = now + _FIRST_LINE
        last = done
        if now < due:
            return
        due = now + _NEXT_LINE
        counted = f"{done:,}" if not total else f"{done:,} of {total:,} ({done / total:.0%})"
        line = f"{stage}: {counted}, {now - started:.0f} s"
        console.print(line, highlight=False, soft_wrap=True, markup=False)

    return move


def make_log(console: Console, prefix: str = "") -> Callable[[str], None]:
    """Returns a function that prints a line as it is, after `prefix: ` where there is one.

    Example:
        >>> log = make_log(Console(), "worker-1")
        >>> log("trial 0003: [started]")
        worker-1: trial 0003: [started]
    """
    start = f"{prefix}: " if prefix else ""

    def log(line: str) -> None:
        console.print(start + line, highlight=False, soft_wrap=True, markup=False)

    return log


def warn(console: Console, message: str) -> None:
    """Prints a warning as a line of its own."""
    line = f"warning: {message}"
    console.print(line, style="yellow", highlight=False, soft_wrap=True, markup=False)
