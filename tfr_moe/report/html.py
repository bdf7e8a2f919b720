"""HTML pages from Jinja templates with Plotly figures; a page is one file and needs no network.

Templates are in `templates/`: `report.html` for runs, `sweep.html` for a sweep, both extend
`base.html`. All values are escaped (autoescape). Figures are embedded as JSON in which `<`, `>`,
`&` and line separators are escaped, so that no name in the data can end the script element.
"""

from __future__ import annotations

import functools
import json
import math
import os
from pathlib import Path
from typing import Any

import tfr_moe
from tfr_moe.errors import UserError
from tfr_moe.report import figures
from tfr_moe.report.model import Report

try:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs
except ImportError:
    raise UserError("the report needs jinja2 and plotly: pip install 'tfr_moe[report]'") from None

TEMPLATES = Path(__file__).with_name("templates")
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


def count(value: int) -> str:
    """Formats an integer with separators of thousands."""
    return f"{value:,}"


@functools.cache
def environment() -> Environment:
    """The Jinja environment of all pages."""
    found = Environment(
        extensions=["jinja2.ext.do"],
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    functions = (number, interval, duration, p_value, count)
    found.globals |= {function.__name__: function for function in functions}
    found.globals |= {"DASH": DASH, "log": math.log, "isnan": math.isnan, "figures": figures}
    found.filters["asset"] = _asset
    return found


def _asset(name: str) -> Markup:
    """A style sheet or script, unescaped: none of them contains data."""
    if name == "plotly.js":
        return Markup(get_plotlyjs())
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


class _Drawn:
    """Collects the figures of a page; templates call it with a `Drawing`."""

    def __init__(self) -> None:
        self.specs: dict[str, Any] = {}

    def __call__(self, drawing: figures.Drawing) -> Markup:
        """The element that the page's script draws the figure in."""
        name = f"figure-{len(self.specs) + 1}"
        figure = drawing.figure.update_layout(template=None)
        self.specs[name] = json.loads(figure.to_json())  # NaN becomes null
        return Markup(
            '<div class="scroll"><div class="plot" id="{}" role="img" aria-label="{}" '
            'style="height:{}px;min-width:{}px;max-width:{}"></div></div>'
        ).format(
            name,
            drawing.label,
            figure.layout.height,
            drawing.min_width,
            f"{drawing.max_width}px" if drawing.max_width else "none",
        )


def render(template: str, **content: Any) -> str:
    """Renders a page.

    Args:
        template: file name in `templates/`.
        **content: variables of the template.
    """
    page = environment().get_template(template)
    return page.render(draw=_Drawn(), version=tfr_moe.__version__, **content)


def render_report(report: Report) -> str:
    """Renders a report on runs: about 5 MB, most of them Plotly's script."""
    return render("report.html", report=report)


def write_page(text: str, path: Path) -> None:
    """Writes a page to a temporary file, then renames it.

    Raises:
        UserError: if the file cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UserError(f"{path}: cannot be written ({error.strerror})") from error
