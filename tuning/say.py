"""Lines on stderr, which many processes write to."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console

Say = Callable[[str], None]


def printer(console: Console, name: str = "") -> Say:
    """A function that prints one line, after the name of the process where it has one."""
    prefix = f"{name}: " if name else ""

    def say(line: str) -> None:
        console.print(prefix + line, highlight=False, soft_wrap=True, markup=False)

    return say
