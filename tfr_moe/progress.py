"""A progress bar with the time that is left, on a terminal; quiet elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def progress_bar(console: Console, description: str) -> Iterator[Callable[..., None]]:
    """Yields a function of (done, total), and optionally the stage's name, that moves the bar.

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
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task(description, total=None)

        def move(done: int, total: int, stage: str = description) -> None:
            progress.update(task, completed=done, total=total, description=stage)

        yield move
