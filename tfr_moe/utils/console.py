"""A progress bar for terminals, progress lines for files, tables that fit, log lines, warnings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple
from weakref import WeakKeyDictionary

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

_SEPARATOR = 2  # padding and divider


class TableColumn(NamedTuple):
    """A column: its title, a cell for each row, and whether they are aligned as numbers."""

    title: str
    cells: Sequence[str]
    numeric: bool = True

    @property
    def width(self) -> int:
        """The width in the terminal, with the separator."""
        lines = [self.title, *(line for cell in self.cells for line in cell.splitlines())]
        return max(map(cell_len, lines)) + _SEPARATOR


def fitted_table(
    columns: Sequence[TableColumn],
    always: int,
    width: int | None = None,
    title: str | None = None,
    caption: str = "",
    grouped: bool = False,
    hint: str = "use --json",
) -> Table:
    """Makes a table of the columns that fit, and names the hidden ones in its caption.

    Columns are in order of importance. The first `always` are always shown, broken at spaces if
    they are too wide; a `width` of None shows all. `grouped` leaves a line where the text of the
    first column changes, `hint` says where the hidden columns are.
    """
    visible, hidden = list(columns[:always]), []
    for column in columns[always:]:
        used = sum(other.width for other in [*visible, column]) - _SEPARATOR
        if width is None or used <= width:
            visible.append(column)
        else:
            hidden.append(column.title)
    if hidden:
        caption = f"{caption}\nhidden columns: {', '.join(hidden)} ({hint})".strip()
    table = Table(
        title=None if title is None else Text(title),
        caption=caption or None,
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,  # intervals do not fit into 80 columns beside vertical lines
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for column in visible:
        table.add_column(
            Text(column.title),
            justify="right" if column.numeric else "left",
            no_wrap=column.numeric,
            overflow="fold",
        )
    rows = list(zip(*(column.cells for column in visible), strict=True))
    for number, cells in enumerate(rows):
        if grouped and number and cells[0] != rows[number - 1][0]:
            table.add_section()
        table.add_row(*map(Text, cells))
    return table


ProgressCallback = Callable[..., None]
"""Called with (done, total) and optionally the name of the stage: what `progress_bar` yields."""


_FIRST_LINE, _NEXT_LINE = 10.0, 30.0
"""Seconds until the first progress line in a file, and from one to the next."""


@contextmanager
def progress_bar(console: Console, description: str) -> Iterator[ProgressCallback]:
    """Shows a progress bar until the block ends; yields `move(done, total=None, stage=...)`.

    What is no terminal gets a line instead: ten seconds into each stage, then every thirty.
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
    """Returns a function that prints a line as it is, after `prefix: ` where there is one."""
    start = f"{prefix}: " if prefix else ""

    def log(line: str) -> None:
        console.print(start + line, highlight=False, soft_wrap=True, markup=False)

    return log


_warned: WeakKeyDictionary[Console, set[str]] = WeakKeyDictionary()


def warn(console: Console, message: str) -> None:
    """Prints a warning as one line, each once on a console: a comparison has many runs."""
    printed = _warned.setdefault(console, set())
    if message in printed:
        return
    printed.add(message)
    line = f"warning: {message}"
    console.print(line, style="yellow", highlight=False, soft_wrap=True, markup=False)
