"""HTML reports on runs, comparisons of runs and sweeps.

`build` evaluates runs and collects the content of a report, defined in `model`; `html` renders it
from the templates, with `figures`. `sweep` renders the page of a sweep, with `sweep_figures`.
"""

from tfr_moe.utils.lazy import lazy_names

# TensorFlow is slow to load.
__all__, __getattr__, __dir__ = lazy_names(__name__, {"sweep": ["write_sweep_report"]})
