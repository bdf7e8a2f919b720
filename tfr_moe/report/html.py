"""HTML pages from Jinja templates; a page is one file of plain HTML and needs no network.

Templates are in `templates/`: `report.html` for runs, `sweep.html` for a sweep, both extend
`base.html`. All values are escaped (autoescape). Heat maps are tables, charts are SVG elements; a
small script sorts and searches tables, without which the page is complete.
"""

from __future__ import annotations

import functools
import math
import os
from pathlib import Path
from typing import Any

import tfr_moe
from tfr_moe.errors import UserError
from tfr_moe.evaluation.leaderboard import excludes_zero, significant
from tfr_moe.report import figures, findings, formats, gate_view
from tfr_moe.report.glossary import Glossary
from tfr_moe.report.model import Report

try:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup
except ImportError:
    raise UserError("the report needs jinja2: pip install 'tfr_moe[report]'") from None

TEMPLATES = Path(__file__).with_name("templates")


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
    names = ("number", "interval", "duration", "p_value", "count", "short", "DASH")
    found.globals |= {name: getattr(formats, name) for name in names}
    found.globals |= {
        "isnan": math.isnan,
        "log": math.log,
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


def render(template: str, **content: Any) -> str:
    """Renders a page.

    Args:
        template: file name in `templates/`.
        **content: variables of the template.
    """
    page = environment().get_template(template)
    return page.render(term=Glossary(), version=tfr_moe.__version__, **content)


def render_report(report: Report) -> str:
    """Renders a report on runs."""
    return render("report.html", report=report, findings=findings)


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
