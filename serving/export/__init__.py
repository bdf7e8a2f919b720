"""Exports trained models as versions that TensorFlow Serving runs; replays their requests."""

from tfr_moe._compat import lazy_names

# `predict` needs the parsing of requests alone.
__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {"export": ("export_model", "export_run"), "skew": ("SkewRow", "measure_skew")},
)
