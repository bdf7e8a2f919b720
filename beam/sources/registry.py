"""The registry of sources and their options."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, get_origin

import apache_beam as beam
from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

from tfr_moe.errors import UserError, did_you_mean
from tfr_moe.schema import FeatureSchema


class Input(NamedTuple):
    """What a source returns.

    Attributes:
        rows: transform from the pipeline to a collection of lists of some hundreds of `RawRow` (one
            element per row would cost Beam as much as the row itself costs), or to `SourceRows`.
        files: names of the files, sorted.
        total_bytes: their size as stored.
        notes: facts that a reader of the results must know, for the manifest.
        split_of: list ID -> split, where the files say it; None where the build decides.
    """

    rows: beam.PTransform
    files: list[str]
    total_bytes: int
    notes: Mapping[str, Any] = {}
    split_of: Callable[[str], str] | None = None


class SourceOptions(BaseModel):
    """Base class of the options of a source; the description of a field is its help text.

    The text of a tuple is split at its commas: `a,b` or `[a, b]`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _from_text(cls, value: Any, info: ValidationInfo) -> Any:
        annotation = cls.model_fields[info.field_name or ""].annotation
        if isinstance(value, str) and get_origin(annotation) is tuple:
            return [part.strip() for part in value.strip("[]").split(",") if part.strip()]
        return value


@dataclass(frozen=True)
class Source:
    """A registered source; calling it returns the `Input`.

    Attributes:
        name: as on the command line.
        read: function of the input pattern, the schema and the options.
        options: model of its options.
        schema: function of the input pattern and the options that returns a default schema; None
            where the user has to provide one.
    """

    name: str
    read: Callable[[str, FeatureSchema, Any], Input]
    options: type[SourceOptions] = SourceOptions
    schema: Callable[[str, Any], FeatureSchema] | None = None

    def __call__(self, pattern: str, schema: FeatureSchema, options: Any = None) -> Input:
        """Returns the input; without options, with their defaults."""
        return self.read(pattern, schema, self.options() if options is None else options)


def check_columns(path: str, present: set[str], needed: list[str]) -> None:
    """Checks that a file has all columns.

    Raises:
        UserError: naming the file, the missing columns and the present ones.
    """
    missing = [name for name in needed if name not in present]
    if missing:
        listed = ", ".join(repr(name) for name in missing)
        available = ", ".join(sorted(present)) or "none"
        hint = did_you_mean(missing[0], present)
        text = f"{path}: missing column {listed}; the file has: {available}"
        raise UserError(f"{text}; {hint}" if hint else text)


def schema_columns(schema: FeatureSchema) -> list[str]:
    """Returns all columns that a schema names: roles, time, features."""
    named = [column for column in (*schema.role_columns(), schema.time) if column]
    return named + [feature.name for feature in schema.log_features]


_SOURCES: dict[str, Source] = {}


def register(
    name: str,
    options: type[SourceOptions] = SourceOptions,
    schema: Callable[[str, Any], FeatureSchema] | None = None,
) -> Callable[[Callable[[str, FeatureSchema, Any], Input]], Source]:
    """Registers a function of input pattern, schema and options as a source; see `Source`.

    Example:
        >>> @register("my-logs")
        ... def my_logs(pattern, schema, options):
        ...     files = match(pattern)
        ...     return Input(ReadFiles(files, read), list(files), sum(files.values()))
        >>> my_logs.name
        'my-logs'
        >>> del _SOURCES["my-logs"]
    """

    def add(read: Callable[[str, FeatureSchema, Any], Input]) -> Source:
        _SOURCES[name] = Source(name, read, options, schema)
        return _SOURCES[name]

    return add


def load_source_modules(modules: Sequence[str]) -> None:
    """Imports modules that register sources; the working directory is searched as well.

    Raises:
        UserError: naming the module that cannot be imported.
    """
    if modules and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise UserError(f"source module {name!r} cannot be imported: {error}") from error


def sources() -> dict[str, Source]:
    """Returns all sources by name: built-in, and registered by imported modules."""
    package = importlib.import_module("tfr_moe.beam.sources")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return dict(sorted(_SOURCES.items()))


def get_source(name: str) -> Source:
    """Returns the source of that name.

    Raises:
        UserError: if there is none; the message lists the available ones.
    """
    available = sources()
    if name not in available:
        raise UserError(f"unknown source {name!r}; available: {', '.join(available)}")
    return available[name]
