"""Source `letor`: SVMLight files, `grade qid:7 1:0.5 3:NULL ... # comment`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from apache_beam.io.filesystems import FileSystems

from experiments.datasets.files import SplitFiles, SplitOptions, first_line, split_of
from tfr_moe.beam.sources import (
    Input,
    RawRow,
    ReadFiles,
    is_valid_text,
    lines,
    register,
)
from tfr_moe.elwc import RowError
from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema

QUERY, GRADE, FEATURES = "qid", "relevance", "features"
_QID = re.compile(r"\bqid:")
_COLUMN = re.compile(rf"({QUERY}|{GRADE}|{FEATURES}|f[1-9]\d*)$")


def letor_schema(pattern: str, options: SplitOptions) -> FeatureSchema:
    """Returns one numeric feature as wide as the files, label `relevance`, list ID `qid`."""
    width = max(map(_highest, SplitFiles(pattern, options).sizes))
    feature = {"name": FEATURES, "scope": "example", "kind": "numeric", "width": width}
    return FeatureSchema.model_validate(
        {"list_id": QUERY, "labels": [GRADE], "features": [feature]}
    )


@register("letor", SplitOptions, letor_schema)
def letor(pattern: str, schema: FeatureSchema, options: SplitOptions) -> Input:
    """SVMLight files with qid, or with the sizes of the queries in FILE.query.

    The format of MSLR-WEB30K, Yahoo, Istella and LightGBM's examples. Columns are `qid`,
    `relevance`, `features` (all; feature k at index k - 1) and `f1`, `f2`, ...; NULL, nan and
    features missing in a line are 0. With `validation` and `test` the files define the splits.

    Raises:
        UserError: if no file matches, a file has neither qid nor sizes, or the sizes don't add up.
    """
    files = SplitFiles(pattern, options)
    for column in [schema.list_id, *schema.labels, *(feature.name for feature in schema.features)]:
        if not _COLUMN.match(column):
            available = f"{QUERY}, {GRADE}, {FEATURES}, f1, f2, ..."
            raise UserError(f"schema: unknown column {column!r}; available: {available}")
    width = max((f.width for f in schema.features if f.name == FEATURES), default=0)
    singles = [feature.name for feature in schema.features if feature.name != FEATURES]
    for path in files.sizes:
        _queries(path)
    reader = partial(_read, width=width, singles=singles, files=files)
    return Input(
        ReadFiles(files.sizes, reader),
        list(files.sizes),
        sum(files.sizes.values()),
        split_of=split_of if files.apart else None,
    )


def _highest(path: str) -> int:
    highest = 0
    for _, text in lines(path):
        # Features ascend in a line, so that the last one is the highest.
        last = text.partition("#")[0].split()[-1:]
        number = last[0].partition(":")[0] if last else ""
        highest = max(highest, int(number) if number.isascii() and number.isdigit() else 0)
    if not highest:
        raise UserError(f"{path}: no line has a feature")
    return highest


def _queries(path: str) -> list[str] | None:
    """Returns the query of each row by the file of sizes; None where each line has its qid."""
    if _QID.search(first_line(path)):
        return None
    plain = path.removesuffix(".gz")
    candidates = [f"{plain}.query", f"{path}.query"]
    file = next(filter(FileSystems.exists, candidates), None)
    if file is None:
        missing = f"there is no file {candidates[0]} with sizes"
        raise UserError(f"{path}: line 1 has no qid, and {missing}")
    queries = []
    for query, (number, text) in enumerate(lines(file), start=1):
        if not (text.isascii() and text.strip().isdigit()) or int(text) < 1:
            raise UserError(f"{file}, line {number}: expected the size of a query, got {text!r}")
        queries += [f"{plain.rpartition('/')[2]}-{query}"] * int(text)
    return queries


def _read(
    path: str, index: int, width: int, singles: list[str], files: SplitFiles
) -> Iterator[RawRow]:
    queries = _queries(path)
    count = 0
    for number, text in lines(path):
        if text.lstrip().startswith("#"):
            continue
        count += 1
        try:
            values = _values(text, width, singles)
            if queries is not None and count <= len(queries):
                values[QUERY] = queries[count - 1]
            if QUERY in values:
                values[QUERY] = files.list_id(path, str(values[QUERY]))
            yield RawRow(index, number, values)
        except RowError as error:
            yield RawRow(index, number, repr(text), str(error))
    if queries is not None and count != len(queries):
        raise UserError(
            f"{path}: has {count} rows, the sizes of its queries add up to {len(queries)}"
        )


def _values(text: str, width: int, singles: list[str]) -> dict[str, object]:
    if not is_valid_text(text):
        raise RowError("not valid UTF-8")
    grade, *pairs = text.partition("#")[0].split() or [""]
    values: dict[str, object] = {GRADE: grade, **dict.fromkeys(singles, 0.0)}
    features = [0.0] * width
    for pair in pairs:
        name, colon, value = pair.partition(":")
        if not colon:
            raise RowError(f"expected feature:value, got {pair!r}")
        if name == QUERY:
            values[QUERY] = value
            continue
        index = int(name) if name.isascii() and name.isdigit() else 0
        if index < 1 or (width and index > width):
            raise RowError(f"expected a feature from 1 to {width or 'any'}, got {pair!r}")
        try:
            number = 0.0 if value.lower() in ("null", "nan", "") else float(value)
        except ValueError:
            raise RowError(f"expected a number, got {pair!r}") from None
        if width:
            features[index - 1] = number
        if f"f{index}" in values:
            values[f"f{index}"] = number
    if width:
        values[FEATURES] = features if width > 1 else features[0]
    return values
