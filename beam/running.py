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
        with _quiet_about_users(), _rare_collections(), pipeline:
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


@contextmanager
def _quiet_about_users() -> Iterator[None]:
    """Keeps the tracebacks of `UserError`s, which Beam logs, from the user: the line is enough."""
    logger = logging.getLogger("apache_beam.runners.common")

    def wanted(record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], UserError))

    logger.addFilter(wanted)
    try:
        yield
    finally:
        logger.removeFilter(wanted)


def _user_message(error: Exception) -> str | None:
    """The message of a `UserError` that a step raised, None if it was something else.

    Beam adds the name of the step to the message; from other processes comes only the traceback's text.
    """
    if isinstance(error, UserError):
        return str(error).split(_STEP)[0]
    found = _USER_ERROR.search(str(error))
    return found[1] if found else None
