"""Numbers and values as pages and tables write them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from typing import Any

DASH = "–"


def number(value: float | None, sign: bool = False) -> str:
    """Formats with four decimals, or as a dash if undefined.

    Example:
        >>> number(0.5), number(0.012, sign=True), number(float("nan"))
        ('0.5000', '+0.0120', '–')
    """
    if value is None or math.isnan(value):
        return DASH
    return f"{value:+.4f}" if sign else f"{value:.4f}"


def mean(value: float, std: float | None = None) -> str:
    """Formats a mean with the standard deviation over seeds if it is known.

    Example:
        >>> mean(0.87883, 0.0012), mean(0.87883)
        ('0.8788 ± 0.0012', '0.8788')
    """
    return number(value) if std is None else f"{value:.4f} ± {std:.4f}"


def setting(value: Any) -> str:
    """Formats the value of a setting in few characters.

    Example:
        >>> [setting(value) for value in (0.001, [1024, 512], None, True, "TC+SC")]
        ['0.001', '1024-512', '–', 'yes', 'TC+SC']
    """
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
    """Formats the ends of an interval, or a dash if undefined.

    Example:
        >>> interval(0.1, 0.2), interval(None, None)
        ('0.1000 to 0.2000', '–')
    """
    text = f"{number(low, sign)} to {number(high, sign)}"
    return DASH if DASH in text else text


def duration(seconds: float) -> str:
    """Formats seconds for reading.

    Example:
        >>> duration(42), duration(600), duration(9000)
        ('42 s', '10 min', '2.5 h')
    """
    if math.isnan(seconds):
        return DASH
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def p_value(value: float) -> str:
    """Formats a p value.

    Example:
        >>> p_value(0.04), p_value(1e-9)
        ('0.0400', '< 0.0001')
    """
    return "< 0.0001" if value < 1e-4 else number(value)


def percent(value: float, decimals: int = 0) -> str:
    """Formats a share.

    Example:
        >>> percent(0.17), percent(0.004, 1)
        ('17 %', '0.4 %')
    """
    return f"{100 * value:.{decimals}f} %"


def command(*words: object) -> str:
    """A command line of `tfr-moe`, quoted for a shell.

    Example:
        >>> command("train", "--data", "my data")
        "tfr-moe train --data 'my data'"
    """
    return shlex.join(["tfr-moe", *map(str, words)])


def count(value: int) -> str:
    """Formats an integer with separators of thousands."""
    return f"{value:,}"


def short(value: int | None) -> str:
    """Formats a large number in thousands or millions.

    Example:
        >>> short(950), short(12_345), short(1_200_000), short(None)
        ('950', '12.3 k', '1.2 M', '–')
    """
    if value is None:
        return DASH
    for unit, size in (("M", 1_000_000), ("k", 10_000)):
        if value >= size:
            return f"{value / (1000 if unit == 'k' else size):.1f} {unit}"
    return f"{value:,}"
