"""Finds columns that name the same things as another column, such as titles beside product IDs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

_MIN_IDS = 100
_AGREEMENT = 0.9


def repeated_ids(columns: Mapping[str, NDArray[np.int32]], names: Iterable[str]) -> dict[str, str]:
    """Returns the columns that repeat another one, nearly one-to-one, with the other's name.

    Columns of 100 IDs or fewer, such as categories, are never among them.

    Args:
        columns: column -> code of the ID, by row.
        names: all columns, those to prefer first.

    Example:
        >>> product = np.arange(400) % 200
        >>> repeated_ids({"title": 199 - product, "product_id": product}, ["product_id", "title"])
        {'title': 'product_id'}
    """
    distinct = {name: len(np.unique(codes)) for name, codes in columns.items()}
    retained: list[str] = []
    repeated: dict[str, str] = {}
    for name in (name for name in names if distinct.get(name, 0) > _MIN_IDS):
        same = (other for other in retained if _one_to_one(columns, distinct, name, other))
        other = next(same, None)
        if other is None:
            retained.append(name)
        else:
            repeated[name] = other
    return repeated


def _one_to_one(
    columns: Mapping[str, NDArray[np.int32]], distinct: Mapping[str, int], name: str, other: str
) -> bool:
    fewer, more = sorted((distinct[name], distinct[other]))
    if fewer < _AGREEMENT * more:
        return False
    # Codes are below 2^31, so a pair fits 64 bits.
    pairs = columns[name].astype(np.int64) << 32 | columns[other]
    return fewer >= _AGREEMENT * len(np.unique(pairs))
