"""Source `letor`: SVMLight files, `grade qid:7 1:0.5 3:NULL ... # comment`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from pydantic import Field

from tfr_moe.beam.rows import RawRow
from tfr_moe.beam.sources.files import (
    ReadFiles,
    exists,
    first_line,
    is_valid_text,
    lines,
    open_file,
)
from tfr_moe.beam.sources.registry import Input, SplitFiles, SplitOptions, register, split_of
from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema

QUERY, GRADE, FEATURES = "qid", "relevance", "features"
_QID = re.compile(r"\bqid:")


class LetorOptions(SplitOptions):
    """Options of `letor`."""

    num_features: int | None = Field(
        None,
        ge=1,
        description="number of features; by default the highest one in the files",
    )
    null: float = Field(0.0, description="value for NULL and nan")


def letor_schema(pattern: str, options: LetorOptions) -> FeatureSchema:
    """Returns one numeric feature as wide as the files, label `relevance`, list ID `qid`."""
    width = options.num_features or max(
        _highest(path) for path in SplitFiles(pattern, options).sizes
    )
    feature = {"name": FEATURES, "scope": "example", "kind": "numeric", "width": width}
    return FeatureSchema.model_validate(
        {"list_id": QUERY, "labels": [GRADE], "features": [feature]}
    )


@register("letor", LetorOptions, letor_schema)
def letor(pattern: str, schema: FeatureSchema, options: LetorOptions) -> Input:
    """SVMLight files with qid, or with the sizes of the queries in FILE.query.

    The format of MSLR-WEB30K, Yahoo, Istella and LightGBM's examples. Columns are `qid`,
    `relevance`, `features` (all; feature k at index k - 1) and `f1`, `f2`, ...; features missing in
    a line are 0. With `validation` and `test` the files define the splits.

    Raises:
        UserError: if no file matches, a file has neither qid nor sizes, or the sizes don't add up.
    """
    files = SplitFiles(pattern, options)
    known = re.compile(rf"({QUERY}|{GRADE}|{FEATURES}|f[1-9]\d*)$")
    named = [schema.list_id, *schema.labels, *(feature.name for feature in schema.features)]
    for column in named:
        if not known.match(column):
            available = f"{QUERY}, {GRADE}, {FEATURES}, f1, f2, ..."
            raise UserError(f"schema: unknown column {column!r}; available: {available}")
    widths = [feature.width for feature in schema.features if feature.name == FEATURES]
    singles = [feature.name for feature in schema.features if feature.name != FEATURES]
    for path in files.sizes:
        _sizes(path)
    width = max(widths, default=0)
    reader = partial(_read, width=width, singles=singles, null=options.null, files=files)
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


def _sizes(path: str) -> list[int] | None:
    """Returns the sizes of the queries, None where each line has its qid."""
    if _QID.search(first_line(path)):
        return None
    candidates = [f"{path.removesuffix('.gz')}.query", f"{path}.query"]
    for name in candidates:
        if exists(name):
            return _read_sizes(name)
    raise UserError(f"{path}: line 1 has no qid, and there is no file {candidates[0]} with sizes")


def _read_sizes(path: str) -> list[int]:
    with open_file(path) as file:
        texts = file.read().decode("ascii", "replace").split()
    for number, text in enumerate(texts, start=1):
        if not text.isascii() or not text.isdigit() or int(text) < 1:
            raise UserError(f"{path}: entry {number}: expected the size of a query, got {text!r}")
    return [int(text) for text in texts]


def _read(
    path: str,
    index: int,
    width: int,
    singles: list[str],
    null: float,
    files: SplitFiles,
) -> Iterator[RawRow]:
    sizes = _sizes(path)
    queries = None if sizes is None else _numbered(path, sizes)
    count = 0
    for number, text in lines(path):
        if text.lstrip().startswith("#"):
            continue
        count += 1
        try:
            values = _values(text, width, singles, null)
            if queries is not None:
                values[QUERY] = next(queries)
            if QUERY in values:
                values[QUERY] = files.list_id(path, str(values[QUERY]))
            yield RawRow(index, number, values)
        except _LineError as error:
            if queries is not None:
                next(queries)
            yield RawRow(index, number, repr(text), str(error))
    if sizes is not None and count != sum(sizes):
        raise UserError(
            f"{path}: has {count} rows, the sizes of its queries add up to {sum(sizes)}"
        )


def _numbered(path: str, sizes: list[int]) -> Iterator[str]:
    name = path.rpartition("/")[2].removesuffix(".gz")
    for query, size in enumerate(sizes, start=1):
        for _ in range(size):
            yield f"{name}-{query}"
    raise UserError(f"{path}: has more rows than the sizes of its queries, {sum(sizes)}")


class _LineError(Exception):
    """Why a line cannot be parsed."""


def _values(text: str, width: int, singles: list[str], null: float) -> dict[str, object]:
    if not is_valid_text(text):
        raise _LineError("not valid UTF-8")
    grade, *pairs = text.partition("#")[0].split() or [""]
    values: dict[str, object] = {GRADE: grade, **dict.fromkeys(singles, 0.0)}
    features = [0.0] * width
    for pair in pairs:
        name, colon, value = pair.partition(":")
        if not colon:
            raise _LineError(f"expected feature:value, got {pair!r}")
        if name == QUERY:
            values[QUERY] = value
            continue
        index = int(name) if name.isascii() and name.isdigit() else 0
        if index < 1 or (width and index > width):
            raise _LineError(f"expected a feature from 1 to {width or 'any'}, got {pair!r}")
        number = _number(value, null, pair)
        if width:
            features[index - 1] = number
        if f"f{index}" in values:
            values[f"f{index}"] = number
    if width:
        values[FEATURES] = features if width > 1 else features[0]
    return values


def _number(value: str, null: float, pair: str) -> float:
    if value.lower() in ("null", "nan", ""):
        return null
    try:
        return float(value)
    except ValueError:
        raise _LineError(f"expected a number, got {pair!r}") from None
