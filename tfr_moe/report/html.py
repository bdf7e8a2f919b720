"""HTML pages from Jinja templates, and figures as files.

A page is one file that needs no network. All values are escaped (autoescape). A small script sorts
and searches tables; without it a page is complete.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

import tfr_moe
from tfr_moe.config import SETTINGS
from tfr_moe.errors import UserError
from tfr_moe.metrics.naming import SUMMARIES
from tfr_moe.report import charts, figures, gate_view
from tfr_moe.report.charts import Chart
from tfr_moe.report.figures import HeatMap
from tfr_moe.utils import formats
from tfr_moe.utils.io import write_text

try:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup
except ImportError:
    raise UserError("the report needs jinja2: pip install 'tfr_moe[report]'") from None

TEMPLATES = Path(__file__).with_name("templates")
TERMS: dict[str, str] = yaml.safe_load((TEMPLATES / "glossary.yaml").read_text(encoding="utf-8"))
"""The words of the pages and their meanings."""
FONTS = "DejaVu Sans, Liberation Sans, Arial, Helvetica"
"""Fonts of figures as files, the first that there is."""


@functools.cache
def environment() -> Environment:
    """The environment, with what templates use."""
    jinja = Environment(
        extensions=["jinja2.ext.do"],
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    names = ("number", "interval", "duration", "p_value", "count", "short", "DASH")
    jinja.globals |= {name: getattr(formats, name) for name in names}
    jinja.globals |= {
        "isnan": math.isnan,
        "log": math.log,
        "command_line": formats.command,
        "charts": charts,
        "figures": figures,
        "gate_view": gate_view,
    }
    jinja.filters["number"] = formats.number
    return jinja


def meaning(name: str) -> str | None:
    """What a term, a setting or a metric means; None if neither.

    Example:
        >>> meaning("click_ndcg_10")
        'NDCG of the k items ranked first against the best k of the list (k = 10)'
    """
    if name in TERMS:
        return TERMS[name]
    if name in SETTINGS:
        return SETTINGS[name].field.description
    for form, summary in sorted(SUMMARIES.items(), key=lambda entry: -len(entry[0])):
        pattern = re.escape(form).replace(r"\[_k\]", "(_([0-9]+))?").replace("_k", "_([0-9]+)")
        if re.fullmatch(rf"(\w+_)??{pattern}", name):
            cutoff = re.search(r"_(\d+)$", name)
            return summary + (f" (k = {cutoff[1]})" if cutoff else "")
    return None


class Glossary:
    """Makes the links of a page; `used` are its terms."""

    def __init__(self) -> None:
        self.used: dict[str, str] = {}

    def __call__(self, name: str, text: str | None = None) -> Markup:
        """A link to the meaning of a term, which is its title too; plain text without one."""
        means = meaning(name)
        if means is None:
            return Markup.escape(text or name)
        self.used[name] = means
        return Markup('<a class="term" href="#term-{}" title="{}">{}</a>').format(
            self.anchor(name), means, text or name
        )

    @staticmethod
    def anchor(name: str) -> str:
        """The id of a term."""
        return re.sub(r"\W+", "-", name).lower()


def render(template: str, svg: Path | None = None, **content: Any) -> str:
    """Renders a template of `templates/` with variables `content`.

    `svg` is a folder that its charts and heat maps are written to as well.
    """
    page, figures = environment().get_template(template), list[Chart | HeatMap]()
    text = page.render(term=Glossary(), exported=figures, version=tfr_moe.__version__, **content)
    if svg is None:
        return text
    svg.mkdir(parents=True, exist_ok=True)
    for number, figure in enumerate(figures, start=1):
        title = figure.caption if isinstance(figure, HeatMap) else figure.finding
        slug = re.sub(r"\W+", "-", title.partition(";")[0].lower()).strip("-")[:60]
        drawn = figure if isinstance(figure, HeatMap) else [figure]
        write_figure(drawn, svg / f"{number:02}-{slug}.svg")
    return text


class Section(NamedTuple):
    """A part of a page; its `finding` is one sentence, its `note` says how to read the figures."""

    title: str
    finding: str
    figures: Sequence[Chart | HeatMap]
    note: str = ""


def render_sections(
    title: str,
    lead: str,
    headline: str,
    sentences: Sequence[str],
    sections: Sequence[Section],
    steps: Sequence[tuple[str, str]] = (),
    bad: bool = False,
    svg: Path | None = None,
) -> str:
    """Renders a page of a verdict and sections.

    It answers the question `title` about the data of `lead`: by the `headline` in a few words, by
    `sentences` with its numbers, and by the sections that it follows from. `steps` say what to do
    next, each with a command or "".
    """
    return render(
        "sections.html",
        svg,
        title=title,
        lead=lead,
        headline=headline,
        sentences=sentences,
        sections=sections,
        steps=steps,
        bad=bad,
    )


def write_page(text: str, path: Path) -> None:
    """Writes a page, whole or not at all; a `UserError` if the file cannot be written."""
    try:
        write_text(path, text)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from error


def write_figure(figure: HeatMap | Sequence[Chart], path: Path) -> None:
    """Writes a heat map, or charts side by side, as an SVG file.

    Raises:
        UserError: if the file cannot be written.

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
    # Characters that XML does not have.
    write_page(re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", "", text).lstrip(), path)


@functools.cache
def _style() -> Markup:
    """The rules of charts in light colours: other programs than browsers know no variables."""
    css = (TEMPLATES / "page.css").read_text(encoding="utf-8")
    light = dict(re.findall(r"--([\w-]+): (#\w+)", css.partition("}")[0]))
    rules = "\n".join(line for line in css.splitlines() if re.match(r"\.(chart|s\d)", line))
    return Markup(re.sub(r"var\(--([\w-]+)\)", lambda name: light[name[1]], rules))
