"""Builds data sets from logs and scores tables, with Apache Beam."""

from __future__ import annotations

import importlib
import logging

from tfr_moe._compat import light_import
from tfr_moe.errors import UserError


def _load_beam() -> None:
    """Imports Beam without its notice about missing Google client libraries.

    Beam logs it on the root logger, which gets a handler that the user did not ask for.
    """
    root = logging.getLogger()
    handlers = list(root.handlers)

    def wanted(record: logging.LogRecord) -> bool:
        return "apitools not found" not in record.getMessage()

    root.addFilter(wanted)
    try:
        with light_import():
            importlib.import_module("apache_beam")
            importlib.import_module("apache_beam.runners.portability.fn_api_runner")
    except ImportError as error:
        raise UserError(
            "building data sets needs Apache Beam: pip install 'tfr_moe[beam]'"
        ) from error
    finally:
        root.removeFilter(wanted)
        for handler in set(root.handlers) - set(handlers):
            root.removeHandler(handler)


_load_beam()

from tfr_moe.beam.build import BuildOptions, build  # noqa: E402
from tfr_moe.beam.predict import predict  # noqa: E402

__all__ = ["BuildOptions", "build", "predict"]


def __dir__() -> list[str]:
    return __all__
