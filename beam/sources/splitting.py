"""Data sets that come with their splits, in files of their own."""

from __future__ import annotations

from pydantic import Field

from tfr_moe.errors import UserError

from .files import match
from .settings import SourceOptions

_SEPARATOR = ":"


class SplitOptions(SourceOptions):
    """Where the other splits are."""

    validation: str = Field(
        "", description="file or pattern of the validation lists, if they are apart"
    )
    test: str = Field("", description="file or pattern of the test lists, if they are apart")


class SplitFiles:
    """The files of all splits.

    Attributes:
        sizes: path -> stored bytes.
        apart: whether the files say which list is for what.
    """

    def __init__(self, pattern: str, options: SplitOptions):
        self._split = dict.fromkeys(match(pattern), "train")
        self.sizes = match(pattern)
        for split in ("validation", "test"):
            others = getattr(options, split)
            for path, size in match(others, f"--set {split}").items() if others else ():
                if path in self.sizes:
                    raise UserError(f"--set {split}: {path} is among the other files as well")
                self.sizes[path] = size
                self._split[path] = split
        self.apart = bool(options.validation or options.test)
        self.sizes = dict(sorted(self.sizes.items()))

    def list_id(self, path: str, name: str) -> str:
        """The id of a list of that file, with its split where the files say it."""
        return f"{self._split[path]}{_SEPARATOR}{name}" if self.apart else name


def split_of(list_id: str) -> str:
    """The split of an id that `SplitFiles.list_id` made."""
    return list_id.partition(_SEPARATOR)[0]
