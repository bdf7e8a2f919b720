"""How names and values of hyper-parameters are written for people."""

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
    """The paper's sign for a hyper-parameter, or its name.

    Example:
        >>> symbol("top_k"), symbol("learning_rate")
        ('K', 'learning_rate')
    """
    return SYMBOLS.get(name, name)


def heading(name: str) -> str:
    """The name with the paper's sign, where there is one.

    Example:
        >>> heading("hsc_weight"), heading("dropout")
        ('hsc_weight (λ₁)', 'dropout')
    """
    return f"{name} ({SYMBOLS[name]})" if name in SYMBOLS else name


def shown(value: Any) -> str:
    """A value in few characters.

    Example:
        >>> shown(0.001), shown([1024, 512]), shown(None), shown(True), shown("TC+SC")
        ('0.001', '1024-512', '–', 'yes', 'TC+SC')
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "-".join(shown(part) for part in value)
    return str(value)


def settings(hyperparameters: Mapping[str, Any], names: Iterable[str]) -> str:
    """The values of the named hyper-parameters in a line.

    Example:
        >>> settings({"num_experts": 16, "top_k": 2, "model": "moe"}, ["num_experts", "top_k"])
        'N = 16, K = 2'
    """
    return ", ".join(f"{symbol(name)} = {shown(hyperparameters.get(name))}" for name in names)


def measured(value: float, std: float = math.nan) -> str:
    """A result with four decimals, and the deviation between seeds where it is known.

    Example:
        >>> measured(0.87883, 0.0012), measured(0.87883)
        ('0.8788 ± 0.0012', '0.8788')
    """
    if math.isnan(value):
        return "–"
    return f"{value:.4f}" if math.isnan(std) else f"{value:.4f} ± {std:.4f}"


def span(numbers: Sequence[int]) -> str:
    """One number, or the least and the greatest.

    Example:
        >>> span([5, 3, 4]), span([5, 5]), span([])
        ('3–5', '5', '')
    """
    ends = {min(numbers), max(numbers)} if numbers else set()
    return "–".join(str(number) for number in sorted(ends))


def order(value: Any) -> tuple[int, float]:
    """Sorts numbers by size, what is missing before them, and leaves words behind them as they were.

    Example:
        >>> sorted(["wide", 3, "narrow", None, 2], key=order)
        [None, 2, 3, 'wide', 'narrow']
    """
    if value is None:
        return (0, 0.0)
    return (1, float(value)) if isinstance(value, (int, float)) else (2, 0.0)
