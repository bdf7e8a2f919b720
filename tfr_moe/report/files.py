"""Pages and figures as files, each written whole or not at all."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from tfr_moe.errors import UserError
from tfr_moe.report.charts import Chart
from tfr_moe.report.figures import HeatMap
from tfr_moe.report.templating import TEMPLATES, environment

FONTS = "DejaVu Sans, Liberation Sans, Arial, Helvetica"
"""Fonts of figures as files, the first that there is."""


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


def write_figure(figure: HeatMap | Sequence[Chart], path: Path) -> None:
    """Writes a heat map, or charts side by side, as an SVG or PNG file.

    Args:
        figure: what is drawn.
        path: with the suffix `.svg` or `.png`.

    Raises:
        UserError: if the file cannot be written, or PNG files cannot be made on this machine.

    Example:
        >>> import tempfile
        >>> from tfr_moe.report import Line, chart
        >>> path = Path(tempfile.mkdtemp()) / "line.svg"
        >>> write_figure([chart([Line("dnn", [1, 2], [3, 4])], "it rises", "x", "y")], path)
        >>> path.read_text()[:4]
        '<svg'
    """
    charted, heat = ((), figure) if isinstance(figure, HeatMap) else (figure, None)
    template = environment().get_template("figure.svg")
    text = template.render(charted=charted, figure=heat, style=_style(), fonts=FONTS, exported=[])
    svg = re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", "", text).lstrip()  # XML
    if path.suffix == ".png":
        _check_fonts()
    write_page(_rasterised(svg) if path.suffix == ".png" else svg, path)


def write_figures(figures: Sequence[Chart | HeatMap], kind: str, folder: Path) -> None:
    """Writes a file of `kind`, `svg` or `png`, for each figure, named by number and caption."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, figure in enumerate(figures, start=1):
        title = figure.caption if isinstance(figure, HeatMap) else figure.finding
        slug = re.sub(r"\W+", "-", title.partition(";")[0].lower()).strip("-")[:60]
        drawn = figure if isinstance(figure, HeatMap) else [figure]
        write_figure(drawn, folder / f"{number:02}-{slug}.{kind}")


@functools.cache
def _style() -> Markup:
    """The rules of charts in light colours: other programs than browsers know no variables."""
    css = (TEMPLATES / "page.css").read_text(encoding="utf-8")
    light = dict(re.findall(r"--([\w-]+): (#\w+)", css.partition("}")[0]))
    rules = "\n".join(line for line in css.splitlines() if re.match(r"\.(chart|s\d)", line))
    return Markup(re.sub(r"var\(--([\w-]+)\)", lambda name: light[name[1]], rules))


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
