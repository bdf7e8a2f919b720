"""Matplotlib drawings as SVG that takes its colours from the page, so that it suits light, dark and paper.

Matplotlib knows colours, not CSS variables. Figures are therefore drawn in the marks of `MARKS`, odd hex
colours that nothing else uses, and each mark is exchanged for a variable of the page: `var(--ink)` and so
on. Text stays text, so that it can be searched, read aloud and set in the page's own font.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

import matplotlib
from matplotlib.figure import Figure

SERIES = 5
INK, MUTED, GRID, PAPER, ACCENT, SOFT = (f"#0{i}0{i}0{i}" for i in range(1, 7))
SERIES_COLOURS = tuple(f"#1{i}1{i}1{i}" for i in range(1, SERIES + 1))
MARKS = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--grid)",
    PAPER: "var(--paper)",
    ACCENT: "var(--accent)",
    SOFT: "var(--soft)",
    **{colour: f"var(--series-{i})" for i, colour in enumerate(SERIES_COLOURS, start=1)},
}
PIXELS_PER_INCH = 72  # Matplotlib's SVG counts in points

_STYLE: Any = {
    "svg.fonttype": "none",
    "font.size": 12,
    "axes.edgecolor": GRID,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "figure.facecolor": "none",
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
}
_NAMESPACE = "http://www.w3.org/2000/svg"


def style() -> Any:
    """The settings to draw under: `with matplotlib.rc_context(style()): ...`."""
    return dict(_STYLE)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many CSS pixels; no window, no global state."""
    return Figure(figsize=(width / PIXELS_PER_INCH, height / PIXELS_PER_INCH), layout="constrained")


def to_svg(figure: Figure, name: str, label: str, hints: Mapping[str, str] | None = None) -> str:
    """The figure as an `<svg>` element for a page.

    Args:
        figure: drawn under `style()`, in the marks of this module.
        name: begins every id in the drawing; distinct within the page.
        label: what it shows, for those who don't see it.
        hints: gid of an artist -> text that appears when the pointer rests on it.

    Example:
        >>> with matplotlib.rc_context(style()):
        ...     figure = new_figure(200, 100)
        ...     _ = figure.subplots().plot([1, 2], color=ACCENT, gid="line")
        ...     text = to_svg(figure, "demo", "a line", {"line": "from 1 to 2"})
        >>> text[:4], "var(--accent)" in text, "<title>from 1 to 2</title>" in text
        ('<svg', True, True)
    """
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}):
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    root = ElementTree.fromstring(buffer.getvalue())
    for unwanted in root.findall(f"{{{_NAMESPACE}}}metadata"):
        root.remove(unwanted)
    for block in root.findall(f"{{{_NAMESPACE}}}defs"):
        for sheet in block.findall(f"{{{_NAMESPACE}}}style"):
            block.remove(sheet)  # would hold for the whole page
    width = float(root.attrib.pop("width").removesuffix("pt"))
    root.attrib.pop("height")
    root.set("role", "img")
    root.set("aria-label", label)
    root.set("style", f"width:{width:.0f}px")
    for element in root.iter():
        hint = (hints or {}).get(element.get("id", ""))
        if hint is not None:
            element.insert(0, _title(hint))
        _prefix_ids(element, name)
    ElementTree.register_namespace("", _NAMESPACE)
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    return _themed(ElementTree.tostring(root, encoding="unicode"))


def _title(text: str) -> ElementTree.Element:
    title = ElementTree.Element(f"{{{_NAMESPACE}}}title")
    title.text = text
    return title


def _prefix_ids(element: ElementTree.Element, name: str) -> None:
    for key, value in element.attrib.items():
        if key == "id":
            element.set(key, f"{name}-{value}")
        elif key.endswith("href") and value.startswith("#"):
            element.set(key, f"#{name}-{value[1:]}")
        elif "url(#" in value:
            element.set(key, value.replace("url(#", f"url(#{name}-"))


def _themed(text: str) -> str:
    # Fonts are the page's; Matplotlib's own name a family that a reader may not have.
    text = re.sub(r"font-family: [^;\"]*", "font-family: var(--font)", text)
    text = re.sub(r"font: ([^;\"]*?px) [^;\"]*", r"font: \1 var(--font)", text)
    for mark, variable in MARKS.items():
        text = text.replace(mark, variable)
    return text
