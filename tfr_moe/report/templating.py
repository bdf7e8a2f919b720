"""The Jinja environment of pages and figures.

All values are escaped (autoescape). Heat maps are tables, charts are SVG elements; a small script
sorts and searches tables, without which a page is complete.
"""

from __future__ import annotations

import functools
import math
from pathlib import Path

from tfr_moe.errors import UserError
from tfr_moe.evaluation.leaderboard import excludes_zero, significant
from tfr_moe.report import charts, figures, formats, gate_view

try:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup
except ImportError:
    raise UserError("the report needs jinja2: pip install 'tfr_moe[report]'") from None

TEMPLATES = Path(__file__).with_name("templates")


@functools.cache
def environment() -> Environment:
    """The environment, with what templates use."""
    found = Environment(
        extensions=["jinja2.ext.do"],
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    names = ("number", "interval", "duration", "p_value", "count", "short", "DASH")
    found.globals |= {name: getattr(formats, name) for name in names}
    found.globals |= {
        "isnan": math.isnan,
        "log": math.log,
        "command_line": formats.command,
        "charts": charts,
        "figures": figures,
        "gate_view": gate_view,
        "excludes_zero": excludes_zero,
        "significant": significant,
    }
    found.filters |= {"asset": _asset, "number": formats.number}
    return found


def _asset(name: str) -> Markup:
    """A style sheet or script, unescaped: none of them contains data."""
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))
