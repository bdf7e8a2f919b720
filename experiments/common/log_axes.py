"""Charts with logarithmic axes: logarithms are drawn, and the ticks are their numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfr_moe.report import Chart, Line, chart


def log_chart(
    axes: str, lines: Sequence[Line], *texts: str, values: Sequence[float] = (), **options: Any
) -> Chart:
    """Computes a chart as `tfr_moe.report.chart` does.

    Args:
        axes: the logarithmic ones, `x`, `y` or `xy`; points that are not above 0 are left out.
        lines: what is drawn, in the units of the numbers.
        texts: the finding and the titles of the axes.
        values: numbers that the vertical axis contains beside those of the lines.
        options: of `chart`; `rule` in the units of what is drawn.
    """
    if "x" in axes:
        lines = [line._replace(x=_logs(line.x)) for line in lines]
        options["x_ticks"] = log_ticks(at for line in lines for at in line.x)
    if "y" in axes:
        lines = [
            line._replace(y=_logs(line.y), low=_logs(line.low), high=_logs(line.high))
            for line in lines
        ]
        values = list(_logs(values))
        drawn = (at for line in lines for ends in (line.y, line.low, line.high) for at in ends)
        options["y_ticks"] = log_ticks([*drawn, *values])
    return chart(lines, *texts, include=((), values), **options)


def _logs(values: ArrayLike) -> NDArray[np.float64]:
    """Returns logarithms, negative infinity for what is not above 0."""
    with np.errstate(divide="ignore"):
        return np.log10(np.maximum(np.asarray(values, float), 0.0))


def log_ticks(logs: Iterable[float]) -> list[tuple[float, str]]:
    """Returns round numbers between powers of ten; the ends if fewer than two of them fit.

    Example:
        >>> log_ticks([-0.5, 1.2])
        [(-0.301..., '0.5'), (0.0, '1'), (0.301..., '2'), (0.698..., '5'), (1.0, '10')]
    """
    finite = [at for at in logs if math.isfinite(at)]
    low, high = min(finite), max(finite)
    factors = (1, 2, 5) if high - low <= 2 else (1,)
    powers = range(math.floor(low), math.ceil(high) + 1)
    numbers = [f * 10.0**power for power in powers for f in factors]
    ticks = [(math.log10(n), f"{n:g}") for n in numbers]
    ticks = [tick for tick in ticks if low - 1e-9 <= tick[0] <= high + 1e-9]
    return ticks if len(ticks) > 1 else [(at, f"{10.0**at:.3g}") for at in sorted({low, high})]
