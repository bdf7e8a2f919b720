"""Runs a pipeline so that a mistake of the user comes out as what it is: one `UserError`."""

from __future__ import annotations

import gc
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from tfr_moe.errors import UserError

_STEP = " [while running"
_USER_ERROR = re.compile(r"tfr_moe\.errors\.UserError: (.*?)(?: \[while running|$)", re.MULTILINE)


@contextmanager
def running(beam_args: tuple[str, ...]) -> Iterator[beam.Pipeline]:
    """Yields a pipeline to put steps into; at the end of the block it runs until it is done.

    Args:
        beam_args: Beam's arguments. Without `--runner` it runs in this process.

    Raises:
        UserError: for arguments that Beam refuses, and where a step raised one.
    """
    pipeline = _pipeline(beam_args)
    try:
        with _only_news(), _rare_collections(), pipeline:
            yield pipeline
    except Exception as error:
        message = _user_message(error)
        if message is None:
            raise
        raise UserError(message) from None


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Rows come as many small objects without cycles, among which Python would look for cycles all the
    time."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def is_embedded(pipeline: beam.Pipeline) -> bool:
    """Whether the pipeline runs in this process, on the runner that shuffles in memory."""
    return isinstance(pipeline.runner, FnApiRunner)


def _pipeline(beam_args: tuple[str, ...]) -> beam.Pipeline:
    try:
        options = PipelineOptions(list(beam_args))
        # Beam's DirectRunner would first try to download a runner written in Go.
        runner = None if options.view_as(StandardOptions).runner else FnApiRunner()
        return beam.Pipeline(runner=runner, options=options)
    except (SystemExit, ValueError, ImportError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"Beam arguments {' '.join(beam_args)}: {reason}") from error


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a message tells the user something: not the traceback of a `UserError`, whose line is enough,
    nor that RunInference can't measure memory, which it says wherever torch is not installed."""
    of_user = record.exc_info and isinstance(record.exc_info[1], UserError)
    return not of_user and "memory usage cannot be fetched" not in record.getMessage()


@contextmanager
def _only_news() -> Iterator[None]:
    """Keeps what is no news out of the logs: filters of a logger see only what is logged with it."""
    loggers = [logging.getLogger(name) for name in ("apache_beam.runners.common", None)]
    for logger in loggers:
        logger.addFilter(_is_news)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(_is_news)


def _user_message(error: Exception) -> str | None:
    """The message of a `UserError` that a step raised, None if it was something else.

    Beam adds the name of the step to the message; from other processes comes only the traceback's text.
    """
    if isinstance(error, UserError):
        return str(error).split(_STEP)[0]
    found = _USER_ERROR.search(str(error))
    return found[1] if found else None
