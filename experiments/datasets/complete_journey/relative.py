"""Where each value lies among the values of its list: rank and deviation, in float64.

The sums are taken over the sorted values of a list, so shuffling the list changes no bit of the
result: listwise sums in the order of the rows would let a model read that order from the rounding.
"""

from __future__ import annotations

import numpy as np

from experiments.datasets.complete_journey.features import EXAMPLE_FEATURES

Array = np.ndarray


def rank_and_deviation(values: Array, starts: Array) -> tuple[Array, Array]:
    """Returns rank and deviation of each value in its list.

    The rank is 0 for the smallest and 1 for the largest value; equal values share their mean rank.
    The deviation is (value - mean) / standard deviation of the list, 0 if all are equal.

    Args:
        values: float64, list by list.
        starts: position of the first value of each list; no list is empty.

    Example:
        >>> rank, deviation = rank_and_deviation(np.array([4.0, 1.0, 1.0]), np.array([0]))
        >>> rank.tolist(), deviation.round(3).tolist()
        ([1.0, 0.25, 0.25], [1.414, -0.707, -0.707])
    """
    sizes = np.diff(np.append(starts, len(values)))
    list_index = np.repeat(np.arange(len(sizes)), sizes)
    order = np.lexsort((values, list_index))
    ordered = values[order]
    begins = np.diff(ordered, prepend=np.nan) != 0
    begins[starts] = True
    run = np.cumsum(begins) - 1
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(values)) - 1
    rank = (first + last)[run] / 2.0 - starts[list_index]
    rank /= np.maximum(sizes - 1, 1)[list_index]

    centred = ordered - (np.add.reduceat(ordered, starts) / sizes)[list_index]
    spread = np.sqrt(np.add.reduceat(centred**2, starts) / sizes)
    # Of equal values, rounding may leave a tiny spread.
    equal = ordered[starts] == ordered[starts + sizes - 1]
    scale = np.where(equal, np.inf, spread)
    results = np.empty((2, len(values)))
    results[:, order] = rank, centred / scale[list_index]
    return results[0], results[1]


def relative_features(features: dict[str, Array], starts: Array) -> dict[str, Array]:
    """Returns `NAME_rank` and `NAME_deviation` of each example feature, binary ones without a rank.

    Counts and prices are compared by their log1p, as models see them.
    """
    relative = {}
    for feature in EXAMPLE_FEATURES:
        values = features[feature.name]
        rank, deviation = rank_and_deviation(np.log1p(values) if feature.log1p else values, starts)
        relative[f"{feature.name}_deviation"] = deviation
        if not feature.binary:
            relative[f"{feature.name}_rank"] = rank
    return relative
