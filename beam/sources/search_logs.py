"""Search logs: files with one row per shown item, the columns named by the schema."""

from __future__ import annotations

from tfr_moe.schema import FeatureSchema

from . import Input, formats, register
from .files import ReadFiles, check_columns, match, schema_columns
from .settings import NoOptions


@register("search-logs")
def search_logs(pattern: str, schema: FeatureSchema, options: NoOptions) -> Input:
    """Rows of all files that match a pattern: CSV with a header, JSON lines or Parquet.

    Raises:
        UserError: if no file matches, or one is of an unknown type, is empty, can't be read, or lacks
            a column of the schema.
    """
    found = match(pattern)
    for path in found:
        check_columns(path, formats.columns(path), schema_columns(schema))
    return Input(ReadFiles(found, formats.read), list(found), sum(found.values()))
