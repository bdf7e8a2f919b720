"""Census-Income as arrays: read, split by a hash of the row, encoded for one group of tasks.

- **Split.** By a hash of the line: 60 % training, 20 % validation, 20 % test. Equal rows
  (about 1 %) are in the same part, so that none leaks into the test part.
- **Weights.** `instance_weight` is the number of people that a row represents. It is neither an
  input (as the description of the data asks) nor a weight in losses and metrics: each row counts
  once.
- **Missing values.** `?` and `Not in universe` are categories like others.
- **Year.** 94 or 95, a category. The migration columns are `?` throughout year 95, so they reveal
  it too.
- **Inputs.** All columns but the group's labels and the weight (`census_income.input_columns`):
  categories one-hot over the values in training rows, others all 0; amounts of money as log(1 + x);
  all numbers scaled to mean 0 and variance 1 on the training rows.
"""

from __future__ import annotations

import gzip
import hashlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import numpy as np
from numpy.typing import NDArray

from experiments.mmoe import census_income as census
from tfr_moe.errors import UserError

FILES = ("census-income.test.gz", "census-income.test")
PARTS = ("train", "validation", "test")
SHARES = (0.6, 0.2, 0.2)
_AMOUNTS = ("wage_per_hour", "capital_gains", "capital_losses", "dividends_from_stocks")


@dataclass(frozen=True)
class CensusRows:
    """The rows of a file, column by column.

    Attributes:
        numbers: column -> [n] float32.
        codes: column -> [n] int32, indices into `values`.
        values: column -> the texts, in order of appearance.
        part: [n] 0, 1 or 2: train, validation or test.
    """

    numbers: dict[str, NDArray[np.float32]]
    codes: dict[str, NDArray[np.int32]]
    values: dict[str, list[str]]
    part: NDArray[np.int8]


@dataclass(frozen=True)
class Split:
    """One part for one group: inputs float32 [n, features], labels float32 [n, 2]."""

    x: NDArray[np.float32]
    y: NDArray[np.float32]


def find_file(data: Path) -> Path:
    """Returns the data file, given it or its folder.

    Raises:
        UserError: if it does not exist.
    """
    if data.is_file():
        return data
    for name in FILES:
        if (data / name).is_file():
            return data / name
    raise UserError(f"--data {data}: is not a file and contains none of {', '.join(FILES)}")


def part_of(line: str) -> int:
    """Returns 0, 1 or 2 for train, validation or test, by a hash of the line.

    Example:
        >>> [part_of(f"row {number}") for number in range(8)]
        [0, 0, 0, 1, 0, 0, 2, 2]
    """
    digest = hashlib.blake2b(line.strip().encode(), digest_size=8).digest()
    number = int.from_bytes(digest, "big") / 2**64
    return int(np.searchsorted(np.cumsum(SHARES)[:-1], number, side="right"))


def _lines(path: Path) -> Iterator[str]:
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as lines:
            yield from cast("IO[str]", lines)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({' '.join(str(error).split())})") from error


def read_table(path: Path) -> CensusRows:
    """Reads a file in the layout of Census-Income, plain or gzip.

    Raises:
        UserError: for a row with the wrong number of values or an invalid number, naming the row.
    """
    numbers = {name: array("f") for name in census.NUMERIC_COLUMNS}
    codes = {name: array("i") for name in census.CATEGORICAL_COLUMNS}
    seen: dict[str, dict[str, int]] = {name: {} for name in census.CATEGORICAL_COLUMNS}
    part = array("b")
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        try:
            row = census.parse_line(line)
        except ValueError as error:
            raise UserError(f"{path} row {number}: {error}") from None
        for name, column in numbers.items():
            try:
                column.append(float(row[name]))
            except ValueError:
                raise UserError(
                    f"{path} row {number}: {name} must be a number, got {row[name]!r}"
                ) from None
        for name, known in seen.items():
            codes[name].append(known.setdefault(row[name], len(known)))
        part.append(part_of(line))
    return CensusRows(
        numbers={name: np.array(column, np.float32) for name, column in numbers.items()},
        codes={name: np.array(column, np.int32) for name, column in codes.items()},
        values={name: list(known) for name, known in seen.items()},
        part=np.array(part, np.int8),
    )


def labels(table: CensusRows, group: int) -> NDArray[np.float32]:
    """Returns [n, 2]: 1 where a row has a positive value of the group's first and second task."""
    columns = []
    for task in census.GROUPS[group]:
        column, positive = census.TASKS[task]
        is_positive = np.array([value in positive for value in table.values[column]])
        columns.append(is_positive[table.codes[column]])
    return np.stack(columns, axis=1).astype(np.float32)


def encode(table: CensusRows, group: int) -> dict[str, Split]:
    """Returns the three parts for a group, encoded with statistics of the training rows.

    Raises:
        UserError: if a part has no rows, or a single label value of a task.
    """
    training = table.part == 0
    y = labels(table, group)
    for index, name in enumerate(PARTS):
        part = y[table.part == index]
        if not len(part) or (part.min(axis=0) == part.max(axis=0)).any():
            raise UserError(f"too few rows: a task of the {name} part has a single label value")
    return {
        name: Split(_inputs(table, group, training, table.part == index), y[table.part == index])
        for index, name in enumerate(PARTS)
    }


def _inputs(
    table: CensusRows, group: int, training: NDArray[np.bool_], rows: NDArray[np.bool_]
) -> NDArray[np.float32]:
    columns = census.input_columns(group)
    return np.concatenate([_encoded(table, name, training, rows) for name in columns], axis=1)


def _encoded(
    table: CensusRows, name: str, training: NDArray[np.bool_], rows: NDArray[np.bool_]
) -> NDArray[np.float32]:
    if name in table.codes:
        codes = table.codes[name]
        known = np.unique(codes[training])
        return (codes[rows, None] == known).astype(np.float32)
    numbers = table.numbers[name]
    numbers = np.log1p(numbers) if name in _AMOUNTS else numbers
    spread = numbers[training].std()
    scaled = (numbers[rows] - numbers[training].mean()) / (spread if spread > 0 else 1)
    return scaled[:, None]
