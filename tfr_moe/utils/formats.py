"""Numbers and values as pages and tables write them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from typing import Any

DASH = "–"


def number(value: float | None, sign: bool = False) -> str:
    """Formats with four decimals, or as a dash if undefined."""
    if value is None or math.isnan(value):
        return DASH
    return f"{value:+.4f}" if sign else f"{value:.4f}"


def mean(value: float, std: float | None = None) -> str:
    """Formats a mean with the standard deviation over seeds if it is known."""
    return number(value) if std is None else f"{value:.4f} ± {std:.4f}"


def setting(value: Any) -> str:
    """Formats the value of a setting in few characters: [1024, 512] as 1024-512."""
    if value is None:
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "-".join(map(setting, value))
    return str(value)


def interval(low: float | None, high: float | None, sign: bool = False) -> str:
    """Formats the ends of an interval, or a dash if undefined."""
    text = f"{number(low, sign)} to {number(high, sign)}"
    return DASH if DASH in text else text


def duration(seconds: float) -> str:
    """Formats seconds, minutes or hours for reading."""
    if math.isnan(seconds):
        return DASH
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def p_value(value: float) -> str:
    """Formats a p value, or that it is below 0.0001."""
    return "< 0.0001" if value < 1e-4 else number(value)


def percent(value: float, decimals: int = 0) -> str:
    """Formats a share."""
    return f"{100 * value:.{decimals}f} %"


def command(*words: object) -> str:
    """A command line of `tfr-moe`, quoted for a shell."""
    return shlex.join(["tfr-moe", *map(str, words)])


def count(value: int) -> str:
    """Formats an integer with separators of thousands."""
    return f"{value:,}"


def short(value: int | None) -> str:
    """Formats a large number in thousands or millions."""
    if value is None:
        return DASH
    for unit, size in (("M", 1_000_000), ("k", 10_000)):
        if value >= size:
            return f"{value / (1000 if unit == 'k' else size):.1f} {unit}"
    return f"{value:,}"
