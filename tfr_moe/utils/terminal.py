"""Tables of the terminal: identifiers stay whole, columns that do not fit are hidden by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

_SEPARATOR = 2  # padding and divider


class Column(NamedTuple):
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
    columns: Sequence[Column],
    always: int,
    width: int | None = None,
    title: str | None = None,
    caption: str = "",
    grouped: bool = False,
    hint: str = "use --json",
) -> Table:
    """Makes a table of the columns that fit, and names the hidden ones in its caption.

    Args:
        columns: in order of importance.
        always: number of first columns that are always shown. Only if these alone are too wide,
            their texts are broken, at spaces where there are any.
        width: columns of the terminal; None shows all.
        title: text above the table.
        caption: text below the table.
        grouped: whether to leave a line where the text of the first column changes.
        hint: where the hidden columns are.

    Example:
        >>> columns = [Column("item", ["a b"], False), Column("price", ["1"]), Column("x", ["2"])]
        >>> table = fitted_table(columns, always=1, width=10)
        >>> [column.header.plain for column in table.columns], table.caption
        (['item', 'x'], 'hidden columns: price (use --json)')
    """
    shown, hidden = list(columns[:always]), []
    for column in columns[always:]:
        used = sum(other.width for other in [*shown, column]) - _SEPARATOR
        if width is None or used <= width:
            shown.append(column)
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
    for column in shown:
        table.add_column(
            Text(column.title),
            justify="right" if column.numeric else "left",
            no_wrap=column.numeric,
            overflow="fold",
        )
    rows = list(zip(*(column.cells for column in shown), strict=True))
    for number, cells in enumerate(rows):
        if grouped and number and cells[0] != rows[number - 1][0]:
            table.add_section()
        table.add_row(*map(Text, cells))
    return table
