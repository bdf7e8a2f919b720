"""A progress bar for terminals, and plain log lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

ProgressCallback = Callable[..., None]
"""Called with (done, total) and optionally the name of the stage: what `progress_bar` yields."""


@contextmanager
def progress_bar(console: Console, description: str) -> Iterator[ProgressCallback]:
    """Shows a progress bar until the block ends, also by an exception.

    Args:
        console: where to draw; nothing is drawn if it is not a terminal.
        description: text before the bar.

    Yields:
        A function `move(done, total=None, description=...)`.

    Example:
        >>> with progress_bar(Console(quiet=True), "sessions") as move:
        ...     move(1, 10)
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    disable = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=disable) as progress:
        task = progress.add_task(description, total=None)

        def move(done: int, total: int | None = None, stage: str = description) -> None:
            progress.update(task, completed=done, total=total, description=stage)

        yield move


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
