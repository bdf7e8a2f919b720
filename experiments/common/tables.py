"""Tables of papers: rows from a `table.yaml`, cells with intervals and the paper's numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import yaml
from pydantic import BaseModel, ValidationError
from scipy import stats

from tfr_moe.errors import UserError, describe
from tfr_moe.evaluation import seed_interval


class Named(Protocol):
    """Anything with a name, such as a row of a table."""

    @property
    def name(self) -> str:
        """The name."""


NamedRow = TypeVar("NamedRow", bound=Named)
TableModel = TypeVar("TableModel", bound=BaseModel)


def load_table(folder: Path, kind: type[TableModel]) -> TableModel:
    """Reads `table.yaml` of a folder of configs.

    Raises:
        UserError: if the file is missing or invalid.
    """
    path = folder / "table.yaml"
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        return kind.model_validate(data)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror}); the setting configs must name a folder of "
            "tables, such as experiments/adv_hsc_moe/configs"
        ) from error
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not valid YAML ({' '.join(str(error).split())})") from error
    except ValidationError as error:
        raise UserError(f"{path}: {describe(error, data)}") from error


def select_rows(rows: Sequence[NamedRow], words: Sequence[str] | None) -> list[NamedRow]:
    """Returns the rows that the words name, in the rows' order; all rows without words.

    A word that equals a row's name selects that row alone, any other word each row that contains
    it.

    Raises:
        UserError: for a word that no row has, listing the rows.
    """
    if words is None:
        return list(rows)
    names = [row.name for row in rows]
    selected = {name for word in words for name in _matching(word, names)}
    return [row for row in rows if row.name in selected]


def _matching(word: str, names: Sequence[str]) -> list[str]:
    same = [name for name in names if name.lower() == word.lower()]
    matching = same or [name for name in names if word.lower() in name.lower()]
    if not matching:
        raise UserError(f"rows: no row's name contains {word!r}; rows: {', '.join(names)}")
    return matching


def score_summary(values: Sequence[float], paper: float | None) -> dict[str, Any]:
    """Returns mean and 95 % t interval over seeds beside the paper's number, for `results.json`."""
    interval = seed_interval(values)
    return {
        "ours": interval.mean,
        "low": interval.low,
        "high": interval.high,
        "runs": list(values),
        "paper": paper,
    }


def score_cell(cell: Mapping[str, Any], digits: int = 4) -> str:
    """Formats a `score_summary`: mean, half-width of its interval, the paper's number.

    Example:
        >>> score_cell({"ours": 0.8, "low": 0.79, "high": 0.81, "paper": 0.82}, digits=2)
        '0.80 ±0.01 (0.82)'
    """
    text = f"{cell['ours']:.{digits}f}"
    if not math.isnan(cell["low"]):
        text += f" ±{cell['high'] - cell['ours']:.{digits}f}"
    return text if cell["paper"] is None else f"{text} ({cell['paper']:.{digits}f})"


def interval_cell(
    value: float, low: float, high: float, digits: int = 4, signed: bool = True
) -> str:
    """Formats a value with its interval; without brackets where there is no interval.

    Example:
        >>> interval_cell(0.1, 0.05, 0.15, digits=2)
        '+0.10 [+0.05, +0.15]'
    """
    form = f"{'+' if signed else ''}.{digits}f"
    if math.isnan(low):
        return f"{value:{form}}"
    return f"{value:{form}} [{low:{form}}, {high:{form}}]"


def welch_difference(a: Sequence[float], b: Sequence[float]) -> dict[str, float]:
    """Mean of a minus mean of b with Welch's 95 % interval and p-value; NaN below two runs of each.

    Example:
        >>> gap = welch_difference([0.8, 0.9], [0.7, 0.8])
        >>> round(gap["difference"], 6), round(gap["low"], 4), round(gap["high"], 4)
        (0.1, -0.2042, 0.4042)
    """
    difference = {"difference": float(np.mean(a) - np.mean(b))}
    if len(a) < 2 or len(b) < 2 or np.ptp(a) + np.ptp(b) < 1e-12:
        return {**difference, "low": math.nan, "high": math.nan, "p_value": math.nan}
    test = stats.ttest_ind(a, b, equal_var=False)
    interval = test.confidence_interval(0.95)
    return {
        **difference,
        "low": float(interval.low),
        "high": float(interval.high),
        "p_value": float(test.pvalue),
    }
