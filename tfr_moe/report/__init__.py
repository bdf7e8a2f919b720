"""HTML reports on runs, comparisons of runs and sweeps.

`build` evaluates runs and collects and renders the content of a report, `run_part` that of one run,
`findings` its sentences. `sweep`, `drift` and `query_explanation` have the other pages. `html` is
the engine: it renders templates, with `charts` and `figures`, and makes a page of any findings.
"""

from tfr_moe._compat import lazy_names

# TensorFlow is slow to load.
__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "charts": ["Chart", "Line", "chart"],
        "figures": ["Cell", "HeatMap", "label", "percent"],
        "html": ["Section", "render_sections", "write_figure", "write_page"],
        "sweep": ["write_sweep_report"],
    },
)
