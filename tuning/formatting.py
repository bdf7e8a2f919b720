"""How names and values of hyper-parameters are displayed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

SYMBOLS = {
    "hsc_weight": "λ₁",
    "adversarial_weight": "λ₂",
    "num_experts": "N",
    "top_k": "K",
    "num_adversarial": "D",
}


def symbol(name: str) -> str:
    """The symbol of a hyper-parameter in the first paper, else its name.

    Example:
        >>> symbol("top_k"), symbol("learning_rate")
        ('K', 'learning_rate')
    """
    return SYMBOLS.get(name, name)


def heading(name: str) -> str:
    """The name with its symbol, if it has one.

    Example:
        >>> heading("hsc_weight"), heading("dropout")
        ('hsc_weight (λ₁)', 'dropout')
    """
    return f"{name} ({SYMBOLS[name]})" if name in SYMBOLS else name


def format_value(value: Any) -> str:
    """A value in few characters.

    Example:
        >>> [format_value(value) for value in (0.001, [1024, 512], None, True, "TC+SC")]
        ['0.001', '1024-512', '–', 'yes', 'TC+SC']
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "-".join(format_value(part) for part in value)
    return str(value)


def format_settings(hyperparameters: Mapping[str, Any], names: Iterable[str]) -> str:
    """The values of the named hyper-parameters in one line.

    Example:
        >>> format_settings({"num_experts": 16, "top_k": 2}, ["num_experts", "top_k"])
        'N = 16, K = 2'
    """
    parts = (f"{symbol(name)} = {format_value(hyperparameters.get(name))}" for name in names)
    return ", ".join(parts)


def format_mean(value: float, std: float = math.nan) -> str:
    """A mean with four decimals, and the standard deviation over seeds if it is known.

    Example:
        >>> format_mean(0.87883, 0.0012), format_mean(0.87883)
        ('0.8788 ± 0.0012', '0.8788')
    """
    if math.isnan(value):
        return "–"
    return f"{value:.4f}" if math.isnan(std) else f"{value:.4f} ± {std:.4f}"


def format_range(numbers: Sequence[int]) -> str:
    """The smallest and the largest number, or the only one.

    Example:
        >>> format_range([5, 3, 4]), format_range([5, 5]), format_range([])
        ('3–5', '5', '')
    """
    ends = {min(numbers), max(numbers)} if numbers else set()
    return "–".join(str(number) for number in sorted(ends))


def sort_key(value: Any) -> tuple[int, float]:
    """Sorts None first, then numbers by size, then other values in their order.

    Example:
        >>> sorted(["wide", 3, "narrow", None, 2], key=sort_key)
        [None, 2, 3, 'wide', 'narrow']
    """
    if value is None:
        return (0, 0.0)
    return (1, float(value)) if isinstance(value, (int, float)) else (2, 0.0)
