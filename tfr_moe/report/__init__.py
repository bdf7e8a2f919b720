"""HTML reports on runs, comparisons of runs and sweeps.

`build` evaluates runs and collects the content of a report, defined in `model`; `html` renders it
from the templates, with `charts` and `figures`; `files` writes them. `sweep` renders the page of a
sweep, with `sweep_figures`. `sections` makes a page of any findings with charts and heat maps.
"""

from tfr_moe.utils.lazy import lazy_names

# TensorFlow is slow to load.
__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "charts": ["Chart", "Line", "chart"],
        "figures": ["Cell", "HeatMap", "label"],
        "files": ["write_figure", "write_page"],
        "formats": ["percent"],
        "sections": ["Section", "render_sections"],
        "sweep": ["write_sweep_report"],
    },
)
