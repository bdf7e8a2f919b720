"""Exports trained models as versions that TensorFlow Serving runs; replays their requests."""

from .export import export_model, export_run
from .skew import SkewRow, measure_skew

__all__ = ["SkewRow", "export_model", "export_run", "measure_skew"]
