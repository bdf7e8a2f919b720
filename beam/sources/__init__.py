"""Where rows come from: one module per source, which registers one function.

A source looks at its input before anything runs and refuses what can't work in one line. It returns an
`Input`: a transform that makes a collection of batches of `RawRow`, and what is known about the files.
Every module of this package that calls `register` is a source: there is no other list of them.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import apache_beam as beam

from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema

from .settings import NoOptions, SourceOptions


class RawRow(NamedTuple):
    """One row as it stands in a file.

    Attributes:
        file: index of the file in `Input.files`.
        line: line of the row, from 1 (the row's number in files that have no lines).
        values: column name -> raw value; the text as it stands if the row can't be taken apart.
        error: why the row can't be taken apart, or None.
        order: which of several rows that one line became; it settles their order in the list.
    """

    file: int
    line: int
    values: Mapping[str, Any] | str
    error: str | None = None
    order: int = 0


class SourceRows(NamedTuple):
    """What a source's transform may give instead of the batches alone.

    Attributes:
        batches: collection of lists of `RawRow`.
        rejects: collection of (file, line, reason, row) that never became rows.
        counts: collection of (("source", thing, outcome), number), such as ("source", "events",
            "read"). For each thing, `read` is the sum of its other outcomes, or the build fails.
    """

    batches: beam.PCollection
    rejects: beam.PCollection
    counts: beam.PCollection


class Input(NamedTuple):
    """What a source gives.

    Attributes:
        rows: a transform from the pipeline to a collection of lists of `RawRow`, some hundreds each
            (an element for each row would cost Beam as much as the row costs us), or to `SourceRows`.
        files: names of the files, sorted.
        total_bytes: their size as stored.
        notes: what a reader of the numbers must know, for the manifest.
        split_of: list id -> split, where the files say it; None where --split decides.
    """

    rows: beam.PTransform
    files: list[str]
    total_bytes: int
    notes: Mapping[str, Any] = {}
    split_of: Callable[[str], str] | None = None


@dataclass(frozen=True)
class Source:
    """A registered source; calling it makes the `Input`.

    Attributes:
        name: as on the command line.
        read: function of the input pattern, the schema and the options.
        options: the model of its options.
        schema: function of the input pattern and the options that makes a schema where none is
            given; None where the user has to give one.
    """

    name: str
    read: Callable[[str, FeatureSchema, Any], Input]
    options: type[SourceOptions] = NoOptions
    schema: Callable[[str, Any], FeatureSchema] | None = None

    def __call__(self, pattern: str, schema: FeatureSchema, options: Any = None) -> Input:
        """The input; without options, with those at their defaults."""
        return self.read(pattern, schema, self.options() if options is None else options)


_SOURCES: dict[str, Source] = {}


def register(
    name: str,
    options: type[SourceOptions] = NoOptions,
    schema: Callable[[str, Any], FeatureSchema] | None = None,
) -> Callable[[Callable[[str, FeatureSchema, Any], Input]], Source]:
    """Registers a source, a function of the input pattern, the schema and the options, under a name."""

    def add(read: Callable[[str, FeatureSchema, Any], Input]) -> Source:
        _SOURCES[name] = Source(name, read, options, schema)
        return _SOURCES[name]

    return add


def sources() -> dict[str, Source]:
    """All sources by name, in the order of the alphabet."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return dict(sorted(_SOURCES.items()))


def get_source(name: str) -> Source:
    """The source of that name.

    Raises:
        UserError: if there is none; the message lists those there are.
    """
    found = sources()
    if name not in found:
        raise UserError(f"source {name!r} is not known; there are: {', '.join(found)}")
    return found[name]
