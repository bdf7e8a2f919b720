"""HTML pages from Jinja templates; a page is one file of plain HTML and needs no network.

Templates are in `templates/`: `report.html` for runs, `sweep.html` for a sweep, both extend
`base.html`. All values are escaped (autoescape). Heat maps are tables, charts are SVG elements; a
small script sorts and searches tables, without which the page is complete.
"""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Mapping
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

FONTS = "DejaVu Sans, Liberation Sans, Arial, Helvetica"
"""Fonts of figures as files, the first that there is."""
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
        "command_line": formats.command,
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


def render(template: str, export: Mapping[str, Path] | None = None, **content: Any) -> str:
    """Renders a page.

    Args:
        template: file name in `templates/`.
        export: `svg` or `png` -> a folder that its charts and heat maps are written to as well, one
            file each.
        **content: variables of the template.
    """
    page, exported = environment().get_template(template), list[figures.Chart | figures.HeatMap]()
    text = page.render(term=Glossary(), exported=exported, version=tfr_moe.__version__, **content)
    for kind, folder in (export or {}).items():
        _write_figures(exported, kind, folder)
    return text


def render_report(report: Report, export: Mapping[str, Path] | None = None) -> str:
    """Renders a report on runs; see `render` for `export`."""
    return render("report.html", export, report=report, findings=findings)


def _write_figures(
    exported: list[figures.Chart | figures.HeatMap], kind: str, folder: Path
) -> None:
    css = (TEMPLATES / "page.css").read_text(encoding="utf-8")
    light = dict(re.findall(r"--([\w-]+): (#\w+)", css.partition("}")[0]))
    rules = "\n".join(line for line in css.splitlines() if re.match(r"\.(chart|s\d)", line))
    # Other programs than browsers know no variables.
    style = Markup(re.sub(r"var\(--([\w-]+)\)", lambda name: light[name[1]], rules))
    if kind == "png" and exported:
        _check_fonts()
    folder.mkdir(parents=True, exist_ok=True)
    for number, figure in enumerate(exported, start=1):
        text = (
            environment().get_template("figure.svg").render(figure=figure, style=style, fonts=FONTS)
        )
        title = figure.caption if isinstance(figure, figures.HeatMap) else figure.finding
        slug = re.sub(r"\W+", "-", title.partition(";")[0].lower()).strip("-")[:60]
        printable = re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", "", text)  # XML
        drawn = _rasterised(printable.lstrip()) if kind == "png" else printable.lstrip()
        write_page(drawn, folder / f"{number:02}-{slug}.{kind}")


def _rasterised(svg: str) -> bytes:
    try:
        import resvg_py
    except ImportError:
        raise UserError("PNG files need resvg-py: pip install 'tfr_moe[report]'") from None

    return bytes(resvg_py.svg_to_bytes(svg_string=svg))


def _check_fonts() -> None:
    """Rejects a machine without fonts, on which texts would be missing without an error."""
    blank = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9">{}</svg>'
    text = f'<text y="9" font-family="{FONTS}">A</text>'
    if _rasterised(blank.format(text)) == _rasterised(blank.format("")):
        raise UserError(f"PNG files need one of these fonts to be installed: {FONTS}")


def write_page(text: str | bytes, path: Path) -> None:
    """Writes a page to a temporary file, then renames it.

    Raises:
        UserError: if the file cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_bytes(text.encode() if isinstance(text, str) else text)
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UserError(f"{path}: cannot be written ({error.strerror})") from error
