"""Data frames and log files as Arrow tables, and schemas inferred from them, without TensorFlow."""

from tfr_moe.tables.arrow import read_table, to_table
from tfr_moe.tables.inference import Inference, infer_schema
from tfr_moe.tables.relations import Decision

__all__ = ["Decision", "Inference", "infer_schema", "read_table", "to_table"]
