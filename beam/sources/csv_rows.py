"""Parses CSV text; a quote that is not closed rejects one line only."""

from __future__ import annotations

import csv
import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tfr_moe.elwc.values import is_valid_text

MAX_LINES = 100
"""A quoted field must be closed within this number of lines."""
_OPEN = f"a quote is not closed within {MAX_LINES} lines"


class CsvRow(NamedTuple):
    """A row of a CSV text; `text` are its lines as in the file, `line` is the number of the first.

    The `error` says why it is no row, None if it is one; `fields` are then those of the line.
    """

    line: int
    fields: list[str]
    text: str
    error: str | None = None


class CsvReader(Iterator[CsvRow]):
    """Rows of a CSV text, the header first.

    A row ends with its line unless a quoted field continues. A field that begins with a quote which
    is not closed would take the following rows in. So a row of several lines is one row only if it
    is closed within `MAX_LINES` lines and its lines are not rows of the header's width when quotes
    are read as ordinary characters. Otherwise its first line has an error, and the lines after it
    are read `again`. Blank lines are skipped. `lines` are with their ends, `number` counts those
    read so far.

    Example:
        >>> text = 'id,title', 'a,"24 inch', 'b,x', 'c,"27 inch', 'd,y'
        >>> for row in CsvReader([f"{line}\\n" for line in text], ","):
        ...     print(row.line, row.fields, row.error)
        1 ['id', 'title'] None
        2 ['a', '"24 inch'] not a CSV row (',' expected after '"')
        3 ['b', 'x'] None
        4 ['c', '"27 inch'] a quote is not closed within 100 lines
        5 ['d', 'y'] None
    """

    def __init__(self, lines: Iterable[str], delimiter: str):
        self._source, self._delimiter = iter(lines), delimiter
        self._width = 0
        self.number = 0
        self.again = deque[str]()

    def __next__(self) -> CsvRow:
        while line := self._line():
            number = self.number = self.number + 1
            taken = [line]
            if '"' in line:
                fields, error = self._quoted_row(taken)
            else:
                text = line.rstrip("\r\n")
                fields, error = text.split(self._delimiter) if text else [], None
            self._width = self._width or len(fields)
            self.number += len(taken) - 1
            if fields:
                return CsvRow(number, fields, "".join(taken), error)
        raise StopIteration

    def columns(self, size: int) -> list[list[str]] | None:
        """Returns the columns of the next rows, at most `size`.

        None, with their lines in `again`, where one needs a closer look: it has a quote, may be
        blank, is of another width than the header, or no valid text; or where there are none.

        Example:
            >>> rows = CsvReader(["query,click\\n", "q,0\\n", "q,1\\n"], ",")
            >>> next(rows).fields, rows.columns(500), rows.columns(500)
            (['query', 'click'], [['q', 'q'], ['0', '1']], None)
        """
        width, delimiter = self._width, self._delimiter
        if self.again:
            return None
        lines = list(itertools.islice(self._source, size))
        text = "".join(lines)
        counts = set(map(str.count, lines, itertools.repeat(delimiter)))
        if width < 2 or counts != {width - 1} or '"' in text or not is_valid_text(text):
            self.again.extend(lines)
            return None
        self.number += len(lines)
        text = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n")
        fields = text.replace("\n", delimiter).split(delimiter)
        return [fields[i::width] for i in range(width)]

    def _line(self) -> str:
        return self.again.popleft() if self.again else next(self._source, "")

    def _quoted_row(self, taken: list[str]) -> tuple[list[str], str | None]:
        """Reads the row that begins with the line in `taken`, to which its other lines are added.

        Lines that were read in vain are left in `again`.
        """
        delimiter = self._delimiter

        def limited() -> Iterator[str]:
            yield taken[0]
            while len(taken) < MAX_LINES and (line := self._line()):
                taken.append(line)
                yield line

        try:
            fields = next(csv.reader(limited(), delimiter=delimiter, strict=True))
            if len(taken) == 1 or not _are_rows(taken, delimiter, self._width):
                return fields, None
            error = _OPEN
        except csv.Error as problem:
            error = _OPEN if "end of data" in str(problem) else f"not a CSV row ({problem})"
        self.again.extendleft(reversed(taken[1:]))
        del taken[1:]
        return taken[0].rstrip("\r\n").split(delimiter), error


def _are_rows(lines: list[str], delimiter: str, width: int) -> bool:
    """Whether each line has the width of the header if quotes are ordinary characters."""
    return width > 1 and all(line.count(delimiter) == width - 1 for line in lines)
