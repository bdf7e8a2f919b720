"""Files, console and processes: helpers that know nothing of ranking."""

from tfr_moe.utils.console import progress_bar
from tfr_moe.utils.io import atomic_directory, make_folder, read_json, write_json
from tfr_moe.utils.settings import parse_pair, read_yaml

__all__ = [
    "atomic_directory",
    "make_folder",
    "parse_pair",
    "progress_bar",
    "read_json",
    "read_yaml",
    "write_json",
]
