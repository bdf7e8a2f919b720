"""HTML pages from Jinja templates; a page is one file of plain HTML and needs no network.

Templates are in `templates/`: `report.html` for runs, `sweep.html` for a sweep, both extend
`base.html`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tfr_moe
from tfr_moe.report import findings
from tfr_moe.report.charts import Chart
from tfr_moe.report.figures import HeatMap
from tfr_moe.report.files import write_figures
from tfr_moe.report.glossary import Glossary
from tfr_moe.report.model import Report
from tfr_moe.report.templating import environment


def render(template: str, export: Mapping[str, Path] | None = None, **content: Any) -> str:
    """Renders a page.

    Args:
        template: file name in `templates/`.
        export: `svg` or `png` -> a folder that its charts and heat maps are written to as well, one
            file each.
        **content: variables of the template.
    """
    page, exported = environment().get_template(template), list[Chart | HeatMap]()
    text = page.render(term=Glossary(), exported=exported, version=tfr_moe.__version__, **content)
    for kind, folder in (export or {}).items():
        write_figures(exported, kind, folder)
    return text


def render_report(report: Report, export: Mapping[str, Path] | None = None) -> str:
    """Renders a report on runs; see `render` for `export`."""
    return render("report.html", export, report=report, findings=findings)
