"""The categories of queries: the table of `from: clicked_in_training` in a data set or run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

from tfr_moe.errors import UserError
from tfr_moe.schema.feature_schema import FeatureSchema
from tfr_moe.schema.names import QUERY_CATEGORIES_FILE
from tfr_moe.utils.io import read_json, write_json

QueryCategories: TypeAlias = Mapping[str, tuple[str, str]]
"""Query -> the parent and the child that were clicked most."""


def by_clicks(schema: FeatureSchema) -> bool:
    """Whether the categories of lists come from clicks."""
    return schema.hierarchy is not None and schema.hierarchy.query is not None


def write_query_categories(folder: str | Path, table: QueryCategories) -> None:
    """Writes the table into a data-set folder."""
    write_json(Path(folder, QUERY_CATEGORIES_FILE), table)


def query_categories(folder: str | Path, schema: FeatureSchema) -> QueryCategories:
    """Returns the table of a data set or run; an empty one where the schema needs none.

    Raises:
        UserError: naming the file that is missing or invalid.
    """
    if not by_clicks(schema):
        return {}
    path = Path(folder, QUERY_CATEGORIES_FILE)
    if not path.is_file():
        raise UserError(f"{path}: is missing; build the data set again")
    return _read(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _read(path: Path, modified: int) -> QueryCategories:
    """Reads a table; `modified` makes the entry of a replaced file invalid."""
    table = read_json(path, dict[str, tuple[str, str]])
    return {query: (parent, child) for query, (parent, child) in table.items()}
