"""`ExampleListWithContext` records without any framework: values, encoder, wire format, files."""

from tfr_moe.elwc.values import RowError, decode_list, is_missing, to_id, to_number, to_time

__all__ = ["RowError", "decode_list", "is_missing", "to_id", "to_number", "to_time"]


def __dir__() -> list[str]:
    return __all__
