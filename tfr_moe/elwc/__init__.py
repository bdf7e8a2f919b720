"""`ExampleListWithContext` records without any framework: values, encoder, wire format, files."""

from tfr_moe.elwc.encoder import RowEncoder, ScopeEncoder
from tfr_moe.elwc.tfrecord import write_records
from tfr_moe.elwc.values import (
    Row,
    RowError,
    RowParser,
    Values,
    decode_list,
    is_missing,
    to_id,
    to_number,
    to_time,
)

__all__ = [
    "Row",
    "RowEncoder",
    "RowError",
    "RowParser",
    "ScopeEncoder",
    "Values",
    "decode_list",
    "is_missing",
    "to_id",
    "to_number",
    "to_time",
    "write_records",
]
