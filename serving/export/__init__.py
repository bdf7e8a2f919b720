"""Exports trained models as versions that TensorFlow Serving runs."""

from .export import export_model, export_run

__all__ = ["export_model", "export_run"]
