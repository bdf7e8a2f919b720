"""Texts that are something else: numbers with a comma or a currency, and times."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

_SAMPLE = 100
_CURRENCY = r"(?:[€$£]|EUR|USD|GBP|CHF)"
_NUMBER = re.compile(
    rf"{_CURRENCY}?\s?-?\d{{1,3}}(?:[., ']?\d{{3}})*(?:[.,]\d+)?\s?{_CURRENCY}?", re.IGNORECASE
)


def are_numbers(words: Sequence[Any]) -> bool:
    """Whether texts look like numbers; digits alone may be IDs.

    Example:
        >>> are_numbers(["12,50", "1.099,00 €"]), are_numbers(["1001", "1002"])
        (True, False)
    """
    texts = [str(word).strip() for word in words[:_SAMPLE] if word]
    digits = sum(text.isdigit() for text in texts)
    return digits < len(texts) and all(map(_NUMBER.fullmatch, texts))


def are_times(words: Sequence[Any]) -> bool:
    """Whether texts are ISO 8601 times.

    Example:
        >>> are_times(["2024-03-01 08:00:00"]), are_times(["01.03.2024"])
        (True, False)
    """
    try:
        texts = [str(word).strip().removesuffix(" UTC") for word in words[:_SAMPLE] if word]
        return bool([datetime.fromisoformat(text.replace("Z", "+00:00")) for text in texts])
    except ValueError:
        return False
