"""Plots in one style, as PNG and SVG, drawn without a display."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfr_moe.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The colours of the library's pages for colour-blind readers, with markers for print in grey.
COLOURS = ("#0072b2", "#d55e00", "#008060", "#b8578f", "#8f6a00", "#56b4e9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

_STYLE: dict[str, Any] = {
    "font.size": 10,
    "font.family": "sans-serif",
    "text.color": "#1b1f24",
    "axes.labelcolor": "#1b1f24",
    "axes.edgecolor": "#535e69",
    "grid.color": "#d0d6dd",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "tfr_moe",
}


@contextmanager
def drawn(
    out: Path,
    name: str,
    panels: int = 1,
    width: float = 4.2,
    height: float = 3.4,
    one_scale: bool = True,
) -> Iterator[list[Axes]]:
    """Yields the axes of `panels` panels, then writes `name.png` and `name.svg`.

    Args:
        out: the folder.
        name: of the files, without suffix.
        panels: number of panels, side by side.
        width: of a panel, in inches.
        height: of a panel, in inches.
        one_scale: whether panels share their vertical scale.

    Raises:
        UserError: if Matplotlib is not installed.

    Example:
        >>> import tempfile
        >>> out = Path(tempfile.mkdtemp())
        >>> with drawn(out, "line") as (axes,):
        ...     _ = axes.plot([1, 2], [3, 4])
        >>> sorted(path.name for path in out.iterdir())
        ['line.png', 'line.svg']
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
        from matplotlib.rcsetup import cycler
    except ImportError:
        raise UserError("plots need matplotlib: pip install matplotlib") from None
    # Matplotlib types the keys as literals.
    style: Any = {**_STYLE, "axes.prop_cycle": cycler(color=COLOURS)}
    with rc_context(style):
        figure = Figure(figsize=(width * panels, height), layout="constrained")
        axes = figure.subplots(1, panels, sharey=one_scale, squeeze=False)[0]
        yield list(axes)
        for ending, metadata in (("png", {}), ("svg", {"Date": None})):
            temporary = out / f".{name}.tmp.{ending}"
            figure.savefig(temporary, dpi=150, metadata=metadata)
            os.replace(temporary, out / f"{name}.{ending}")


def log_scale(axes: Axes) -> None:
    """Sets a logarithmic vertical scale with plain numbers at 1, 2 and 5."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
