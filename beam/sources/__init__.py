"""Where rows come from: one module per source, which registers one function.

A source looks at its input before anything runs and refuses what can't work in one line. It returns an
`Input`: a transform that makes a collection of batches of `RawRow`, and what is known about the files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import apache_beam as beam

from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema


class RawRow(NamedTuple):
    """One row as it stands in a file.

    Attributes:
        file: index of the file in `Input.files`.
        line: line of the row, from 1 (the row's number in files that have no lines).
        values: column name -> raw value; the text as it stands if the row can't be taken apart.
        error: why the row can't be taken apart, or None.
    """

    file: int
    line: int
    values: Mapping[str, Any] | str
    error: str | None = None


class Input(NamedTuple):
    """What a source gives.

    Attributes:
        rows: a transform from the pipeline to a collection of lists of `RawRow`, some hundreds each:
            an element for each row would cost Beam as much as the row costs us.
        files: names of the files, sorted.
        total_bytes: their size as stored.
    """

    rows: beam.PTransform
    files: list[str]
    total_bytes: int


Source = Callable[[str, FeatureSchema], Input]
_SOURCES: dict[str, Source] = {}


def register(name: str) -> Callable[[Source], Source]:
    """Registers a source, a function of the input pattern and the schema, under a name."""

    def add(source: Source) -> Source:
        _SOURCES[name] = source
        return source

    return add


def get_source(name: str) -> Source:
    """The source of that name.

    Raises:
        UserError: if there is none; the message lists those there are.
    """
    # Importing a module registers its source.
    from . import search_logs  # noqa: F401

    if name not in _SOURCES:
        raise UserError(f"source {name!r} is not known; there are: {', '.join(sorted(_SOURCES))}")
    return _SOURCES[name]
