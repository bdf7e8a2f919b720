"""A page of a verdict, what to do next, and sections of figures, for analyses of any kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tfr_moe.report import html
from tfr_moe.report.figures import Chart, HeatMap


class Section(NamedTuple):
    """A part of a page.

    Attributes:
        title: its heading.
        finding: one sentence, computed from what is shown.
        figures: charts and heat maps.
        note: how to read them.
    """

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
    export: Mapping[str, Path] | None = None,
) -> str:
    """Renders a page.

    Args:
        title: the question that it answers.
        lead: of what data.
        headline: the answer in a few words.
        sentences: the answer with its numbers.
        sections: what it follows from.
        steps: what to do next, each with a command or "".
        bad: whether the answer is a problem.
        export: folders for the figures as files, see `html.render`.
    """
    return html.render(
        "sections.html",
        export,
        title=title,
        lead=lead,
        headline=headline,
        sentences=sentences,
        sections=sections,
        steps=steps,
        bad=bad,
    )
