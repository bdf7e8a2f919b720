"""Files that say which list belongs to which split, and first lines of files."""

from __future__ import annotations

import io

from pydantic import Field

from tfr_moe.beam.sources import SourceOptions, match, open_file
from tfr_moe.errors import UserError

_SEPARATOR = ":"


class SplitOptions(SourceOptions):
    """Options of a source whose files say which list belongs to which split."""

    validation: str = Field("", description="file or pattern of the validation lists, if separate")
    test: str = Field("", description="file or pattern of the test lists, if separate")


class SplitFiles:
    """The files of all splits.

    Attributes:
        sizes: path -> stored bytes.
        apart: whether the files say which list belongs to which split.

    Raises:
        UserError: if a pattern matches no file, or a file belongs to two splits.
    """

    def __init__(self, pattern: str, options: SplitOptions):
        sizes = match(pattern)
        self._split = dict.fromkeys(sizes, "train")
        for split, others in options.model_dump(include={"validation", "test"}).items():
            for path, size in match(others, split).items() if others else ():
                if path in sizes:
                    raise UserError(f"{split}: {path} belongs to the {self._split[path]} split too")
                sizes[path], self._split[path] = size, split
        self.apart = bool(options.validation or options.test)
        self.sizes = dict(sorted(sizes.items()))

    def list_id(self, path: str, name: str) -> str:
        """Returns the ID of a list of that file, prefixed with its split if `apart`."""
        return f"{self._split[path]}{_SEPARATOR}{name}" if self.apart else name


def split_of(list_id: str) -> str:
    """Returns the split of an ID made by `SplitFiles.list_id`."""
    return list_id.partition(_SEPARATOR)[0]


def first_line(path: str) -> str:
    """Returns the first line of a text file, without its end.

    Raises:
        UserError: if the file is empty or cannot be read.
    """
    with open_file(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
        line = text.readline()
    if not line:
        raise UserError(f"{path}: the file is empty")
    return line.rstrip("\r\n")
