"""HTML reports on runs, comparisons of runs and sweeps."""

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
