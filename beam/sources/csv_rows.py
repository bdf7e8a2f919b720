"""Rows of CSV text, of which no line gets lost behind a stray quote."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

MAX_LINES = 100
"""A quoted field must be closed within this number of lines."""
_OPEN = f"a quote is not closed within {MAX_LINES} lines"


class CsvRow(NamedTuple):
    """A row of a CSV text.

    Attributes:
        line: number of its first line, from 1.
        fields: its values; those of the line where there is an error.
        text: its lines as they are in the file.
        error: why it is no row; None if it is one.
    """

    line: int
    fields: list[str]
    text: str
    error: str | None = None


def read_csv(lines: Iterable[str], delimiter: str) -> Iterator[CsvRow]:
    """Yields the rows of a CSV text, the header first.

    A row ends with its line unless a quoted field continues. A field that begins with a quote which
    is not closed would take the following rows in. So a row of several lines is one row only if it
    is closed within `MAX_LINES` lines and its lines are not rows of the header's width when quotes
    are read as ordinary characters. Otherwise its first line has an error, and the lines after it
    are read again. Blank lines are skipped.

    Args:
        lines: with their ends.
        delimiter: between fields.

    Example:
        >>> text = 'id,title', 'a,"24 inch', 'b,x', 'c,"27 inch', 'd,y'
        >>> for row in read_csv([f"{line}\\n" for line in text], ","):
        ...     print(row.line, row.fields, row.error)
        1 ['id', 'title'] None
        2 ['a', '"24 inch'] not a CSV row (',' expected after '"')
        3 ['b', 'x'] None
        4 ['c', '"27 inch'] a quote is not closed within 100 lines
        5 ['d', 'y'] None
    """
    source, again = iter(lines), deque[str]()
    number, width = 0, 0
    while line := again.popleft() if again else next(source, ""):
        number += 1
        taken = [line]
        if '"' in line:
            fields, error = _quoted_row(taken, source, again, delimiter, width)
        else:
            text = line.rstrip("\r\n")
            fields, error = text.split(delimiter) if text else [], None
        width = width or len(fields)
        if fields:
            yield CsvRow(number, fields, "".join(taken), error)
        number += len(taken) - 1


def _quoted_row(
    taken: list[str], source: Iterator[str], again: deque[str], delimiter: str, width: int
) -> tuple[list[str], str | None]:
    """Reads the row that begins with the line in `taken`, to which its other lines are added.

    Lines that were read in vain are left in `again`.
    """

    def limited() -> Iterator[str]:
        yield taken[0]
        while len(taken) < MAX_LINES and (line := again.popleft() if again else next(source, "")):
            taken.append(line)
            yield line

    try:
        fields = next(csv.reader(limited(), delimiter=delimiter, strict=True))
        if len(taken) == 1 or not _are_rows(taken, delimiter, width):
            return fields, None
        error = _OPEN
    except csv.Error as problem:
        error = _OPEN if "end of data" in str(problem) else f"not a CSV row ({problem})"
    again.extendleft(reversed(taken[1:]))
    del taken[1:]
    return next(csv.reader(taken, delimiter=delimiter, quoting=csv.QUOTE_NONE)), error


def _are_rows(lines: list[str], delimiter: str, width: int) -> bool:
    """Whether each line has the width of the header if quotes are ordinary characters."""
    rows = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)
    return width > 1 and all(len(row) == width for row in rows)
