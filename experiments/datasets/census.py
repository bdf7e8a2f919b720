"""Source `census`: the UCI Census-Income (KDD) data set, two tasks on lists of one person."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from pydantic import Field

from experiments.datasets.files import SplitFiles, SplitOptions, first_line, split_of
from experiments.mmoe.census_income import (
    GROUPS,
    NUMERIC_COLUMNS,
    WEIGHT_COLUMN,
    input_columns,
    label,
    parse_line,
)
from tfr_moe.beam.sources import (
    Input,
    RawRow,
    ReadFiles,
    is_valid_text,
    lines,
    register,
    schema_columns,
)
from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema

PERSON = "person"
"""List ID: file and line."""


class CensusOptions(SplitOptions):
    """Options of `census`."""

    group: int = Field(
        1,
        ge=1,
        le=2,
        description="1: income and marital status; 2: education and marital status (MMoE paper)",
    )


def _label_column(task: str) -> str:
    return f"{task}_label"


def census_schema(pattern: str, options: CensusOptions) -> FeatureSchema:
    """Returns the tasks of the group as labels, the main one first; other columns as features."""
    features = [
        {"name": name, "scope": "example"}
        | (
            {"kind": "numeric", "transform": "log1p"}
            if name in NUMERIC_COLUMNS
            else {"kind": "categorical"}
        )
        for name in input_columns(options.group)
    ]
    labels = [_label_column(task) for task in GROUPS[options.group]]
    return FeatureSchema.model_validate({"list_id": PERSON, "labels": labels, "features": features})


@register("census", CensusOptions, census_schema)
def census(pattern: str, schema: FeatureSchema, options: CensusOptions) -> Input:
    """UCI Census-Income: the two tasks of a group of the MMoE paper, each person a list of one.

    Columns are those of `census_income`, `person`, and for each task of the group its label, such
    as `income_label`; the column of a label is no feature. With `test` (the other half of the data
    set) or `validation` the files define the splits.

    Raises:
        UserError: if no file matches, one has other columns, or a feature would reveal a label.
    """
    files = SplitFiles(pattern, options)
    for path in files.sizes:
        try:
            parse_line(first_line(path))
        except ValueError as error:
            raise UserError(f"{path}, line 1: {error}") from None
    labels = {_label_column(task): task for task in GROUPS[options.group]}
    allowed = [*input_columns(options.group), WEIGHT_COLUMN, PERSON, *labels]
    for column in schema_columns(schema):
        if column not in allowed:
            raise UserError(
                f"schema: column {column!r} does not belong to group {options.group}; "
                f"available: {', '.join(allowed)}"
            )
    return Input(
        ReadFiles(files.sizes, partial(_read, labels=labels, files=files)),
        list(files.sizes),
        sum(files.sizes.values()),
        split_of=split_of if files.apart else None,
    )


def _read(path: str, index: int, labels: dict[str, str], files: SplitFiles) -> Iterator[RawRow]:
    name = path.rpartition("/")[2]
    for number, text in lines(path):
        try:
            if not is_valid_text(text):
                raise ValueError("not valid UTF-8")
            values = parse_line(text)
        except ValueError as error:
            yield RawRow(index, number, repr(text), str(error))
            continue
        person = files.list_id(path, f"{name}-{number}")
        made = {column: label(values, task) for column, task in labels.items()}
        yield RawRow(index, number, {**values, PERSON: person, **made})
