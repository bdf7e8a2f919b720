"""From utility to clicks, carts and purchases."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from .hashing import Floats
from .options import SearchLogOptions

Ints: TypeAlias = NDArray[np.int64]

TASTE_BONUS = 0.2
HISTORY_BONUS = 0.3


def thresholds(options: SearchLogOptions) -> tuple[float, float, float]:
    """The utility above which an item that was seen is clicked, put into the cart, and bought.

    Solves, for u normal with variance 1 + 2 * 0.2^2 (the linear part, activeness and taste) and each
    rate r,

        E_u[sigmoid((u - threshold) / noise)] * mean examination = r

    by bisection over a quadrature of the normal density.
    """
    u = np.linspace(-6, 6, 2001)
    density = np.exp(-0.5 * u**2)
    density /= density.sum()
    u *= np.sqrt(1 + 2 * TASTE_BONUS**2)

    def solve(rate: float) -> float:
        low, high = -30.0, 30.0
        for _ in range(80):
            middle = (low + high) / 2
            with np.errstate(over="ignore"):
                share = density @ (1 / (1 + np.exp((middle - u) / options.noise)))
            low, high = (middle, high) if share > rate else (low, middle)
        return (low + high) / 2

    seen = options.mean_examination
    clicked, carted, bought = options.click_rate, options.cart_rate, options.purchase_rate
    return solve(clicked / seen), solve(carted / seen), solve(bought / seen)


def decide(
    rng: np.random.Generator,
    utility: Floats,
    position: Ints,
    limits: tuple[float, float, float],
    options: SearchLogOptions,
) -> tuple[Ints, Ints, Ints]:
    """Clicks, carts and purchases (0 or 1) of each row; a purchase has a cart, a cart has a click.

    One logistic draw serves all, so that an item is bought if its noisy utility is above the highest
    threshold, put into the cart if it is above the middle one, and clicked if it is above the lowest.
    """
    seen = rng.random(len(utility)) < position.astype(np.float64) ** -options.position_bias
    noisy = utility + options.noise * rng.logistic(size=len(utility))
    clicked, carted, bought = ((seen & (noisy > limit)).astype(np.int64) for limit in limits)
    return clicked, carted, bought
