"""Data frames and log files as Arrow tables, and schemas inferred from them, without TensorFlow."""

from tfr_moe.tables.arrow import read_table
from tfr_moe.tables.inference import Inference, infer_schema

__all__ = ["Inference", "infer_schema", "read_table"]


def __dir__() -> list[str]:
    return __all__
