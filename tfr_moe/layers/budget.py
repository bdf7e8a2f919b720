"""Widths that give a network a stated number of parameters."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence


def dims_of_budget(
    hidden_dims: Sequence[int], budget: int, parameters: Callable[[tuple[int, ...]], int]
) -> tuple[int, ...]:
    """The same layers, all wider or narrower by one factor, with about `budget` parameters.

    Args:
        hidden_dims: the layers to scale; without any there is nothing to scale.
        budget: the number of parameters to come near to.
        parameters: number of parameters for given layers; must not fall as they widen.

    Example:
        >>> dims_of_budget([4, 2], 300, lambda dims: 10 * dims[0] + dims[0] * dims[1])
        (17, 8)
    """

    def scaled(factor: float) -> tuple[int, ...]:
        return tuple(max(1, round(width * factor)) for width in hidden_dims)

    if not hidden_dims:
        return ()
    # Counting may build the network, and most steps of the search round to widths seen before.
    parameters = functools.cache(parameters)
    low, high = 0.0, 1.0
    while parameters(scaled(high)) < budget:
        low, high = high, 2 * high
    while high - low > 1e-6:
        middle = (low + high) / 2
        if parameters(scaled(middle)) < budget:
            low = middle
        else:
            high = middle
    return min(scaled(low), scaled(high), key=lambda dims: abs(parameters(dims) - budget))
