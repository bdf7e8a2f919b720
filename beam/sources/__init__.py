"""Sources of rows: one module per source, which registers one function.

A source checks its input before anything runs and returns an `Input`: a transform that makes
batches of `RawRow`, and the names of the files. Every module of this package that calls `register`
is a source; modules outside of the package are imported with `BuildOptions.source_modules`.
"""

from tfr_moe.beam.rows import (
    COUNTS,
    REJECTS,
    CountingDoFn,
    RawRow,
    RowKey,
    SourceRows,
)
from tfr_moe.beam.sorted_groups import CoGroupSorted
from tfr_moe.beam.sources.files import (
    ReadFiles,
    ReadRows,
    columns,
    lines,
    match,
    open_file,
    read,
)
from tfr_moe.beam.sources.registry import (
    Input,
    Source,
    SourceOptions,
    check_columns,
    get_source,
    load_source_modules,
    register,
    schema_columns,
    sources,
)
from tfr_moe.beam.transforms.joins import JoinColumns, ReadTable, join_key
from tfr_moe.beam.transforms.shards import TimeBounds
from tfr_moe.elwc.splits import list_hash
from tfr_moe.elwc.values import is_valid_text
from tfr_moe.utils.settings import parse_options

__all__ = [
    "COUNTS",
    "REJECTS",
    "CoGroupSorted",
    "CountingDoFn",
    "Input",
    "JoinColumns",
    "RawRow",
    "ReadFiles",
    "ReadRows",
    "ReadTable",
    "RowKey",
    "Source",
    "SourceOptions",
    "SourceRows",
    "TimeBounds",
    "check_columns",
    "columns",
    "get_source",
    "is_valid_text",
    "join_key",
    "lines",
    "list_hash",
    "load_source_modules",
    "match",
    "open_file",
    "parse_options",
    "read",
    "register",
    "schema_columns",
    "sources",
]


def __dir__() -> list[str]:
    return __all__
