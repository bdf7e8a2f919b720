"""Running a pipeline: the embedded runner by default, user errors in one line, progress."""

from __future__ import annotations

import atexit
import gc
import io
import logging
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr
from pathlib import Path

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms import userstate

from tfr_moe.beam.sorted_groups import num_processes, sort_in
from tfr_moe.errors import UserError
from tfr_moe.utils.console import ProgressCallback
from tfr_moe.utils.failures import file_failure
from tfr_moe.utils.processes import share_of_cores

_STEP = " [while running"
_USER_ERROR = re.compile(r"tfr_moe\.errors\.UserError: (.*?)(?: \[while running|$)", re.MULTILINE)
_OS_ERROR = re.compile(r"\[Errno (\d+)\] ([^:\[\n]*[^:\[\s])(?:: '([^']*)')?")

_listener: Callable[[str, int], None] | None = None


class _Options(PipelineOptions):
    """Options that make each of their views once; views share their values.

    Beam asks for a view with each transform and type hint, and each new one parses all arguments:
    a fifth of the time of a small build.
    """

    def view_as(self, cls: type[PipelineOptions]) -> PipelineOptions:
        views = self.__dict__.setdefault("_views", {})
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]


@contextmanager
def running(
    beam_args: tuple[str, ...], folder: str | Path | None = None
) -> Iterator[beam.Pipeline]:
    """Yields a pipeline and runs it to completion at the end of the block.

    Without `--runner` in `beam_args` it runs in this process, and sorts its data in `folder`, by
    default that of temporary files. Raises a UserError for invalid arguments, and where a step
    raised one.
    """
    pipeline = _pipeline(beam_args)
    try:
        with tempfile.TemporaryDirectory(prefix=".runs-", dir=folder) as runs:
            sort_in(pipeline, runs)
            with (
                _only_news(),
                _rare_collections(),
                _shared_cores(pipeline),
                _inspected_once(),
                pipeline,
            ):
                yield pipeline
    except Exception as error:
        if _is_interrupt(error):
            raise KeyboardInterrupt from None
        message = _user_message(error)
        if message is None:
            raise
        is_of_disk = not isinstance(error, UserError) and os.sep not in message
        raise UserError(f"{folder}: {message}" if folder and is_of_disk else message) from None


_inspect = userstate.get_dofn_specs


@contextmanager
def _inspected_once() -> Iterator[None]:
    """Has Beam look for states and timers once for each class of steps without any.

    It goes through all methods of each step some ten times while it makes and runs a pipeline: a
    sixth of the time of a small build. All functions of `Map` and its like share one class; what
    they ask for is among the defaults of its `process`.
    """
    without: set[tuple[type, str]] = set()

    def specs(step: beam.DoFn) -> tuple[set[userstate.StateSpec], set[userstate.TimerSpec]]:
        key = type(step), repr(step.get_function_arguments("process")[1])
        if key in without:
            return set(), set()
        states, timers = _inspect(step)
        if not states and not timers:
            without.add(key)
        return states, timers

    userstate.get_dofn_specs = specs
    try:
        yield
    finally:
        userstate.get_dofn_specs = _inspect


def collect_rarely() -> None:
    """Runs the garbage collector rarely, and not at the exit.

    Rows are many small objects without reference cycles. The worker processes of the embedded
    runner end one after the other, each after a search of a second.
    """
    gc.set_threshold(100_000, *gc.get_threshold()[1:])
    atexit.register(_freeze)


def _freeze() -> None:
    # Not `gc.freeze` itself: to unregister that would also undo what the command line registers.
    gc.freeze()


@contextmanager
def _rare_collections() -> Iterator[None]:
    threshold = gc.get_threshold()
    collect_rarely()
    try:
        yield
    finally:
        atexit.unregister(_freeze)
        gc.set_threshold(*threshold)


@contextmanager
def _shared_cores(pipeline: beam.Pipeline) -> Iterator[None]:
    """Gives each of several worker processes its share of the cores, in their environment.

    Threads of TensorFlow for all cores in each of them would wait for one another.
    """
    workers = num_processes(pipeline)
    shared = share_of_cores(workers) if workers > 1 else {}
    added = [name for name in shared if name not in os.environ]
    os.environ.update(shared)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def _pipeline(beam_args: tuple[str, ...]) -> beam.Pipeline:
    # The parser of Beam prints its usage, and exits.
    usage = io.StringIO()
    try:
        options = _Options(list(beam_args))
        with redirect_stderr(usage):
            options.get_all_options(retain_unknown_options=True)
        # Beam's DirectRunner would first try to download a runner written in Go.
        runner = None if options.view_as(StandardOptions).runner else FnApiRunner()
        return beam.Pipeline(runner=runner, options=options)
    except (SystemExit, ValueError, ImportError) as error:
        text = usage.getvalue().rpartition("error: ")[2] or str(error)
        reason = " ".join(text.split())
        raise UserError(f"Beam arguments {' '.join(beam_args)}: {reason}") from error


def _is_news(record: logging.LogRecord) -> bool:
    """Drops tracebacks of errors whose line is enough."""
    error = record.exc_info and record.exc_info[1]
    if _is_interrupt(error):
        return False
    return not isinstance(error, Exception) or _user_message(error) is None


def _is_interrupt(error: object) -> bool:
    """Whether Ctrl-C stopped a step, which Beam makes a RuntimeError with the step's name, and an
    import of C++ an ImportError."""
    if isinstance(error, KeyboardInterrupt):
        return True
    tagged = str(error).startswith(f"KeyboardInterrupt{_STEP}")
    cause = isinstance(error, BaseException) and (error.__cause__ or error.__context__)
    return tagged or (bool(cause) and _is_interrupt(cause))


@contextmanager
def _only_news() -> Iterator[None]:
    """Filters the logs: a filter of a logger sees only what is logged with that very logger."""
    with ExitStack() as filters:
        for logger in (logging.getLogger("apache_beam.runners.common"), logging.getLogger()):
            logger.addFilter(_is_news)
            filters.callback(logger.removeFilter, _is_news)
        yield


def _user_message(error: Exception) -> str | None:
    """Returns the line of an error of the user, a file or the disk in a step, else None.

    Beam appends the name of the step; other processes send only the text of the traceback.
    """
    if isinstance(error, UserError):
        return str(error).split(_STEP)[0]
    text = str(error)
    if match := _USER_ERROR.search(text):
        return match[1]
    if match := _OS_ERROR.search(text):
        return file_failure(OSError(int(match[1]), match[2], match[3]))
    return file_failure(error)


@contextmanager
def reporting(
    progress: ProgressCallback | None, total_bytes: int, total_files: int
) -> Iterator[None]:
    """Forwards `advance` to `progress`, as described for `build`, while the block runs.

    Steps of a pipeline are pickled and cannot hold a callback. With the embedded runner they run in
    this process and find the listener here; workers elsewhere report nothing.
    """
    global _listener
    totals = {"read": total_bytes, "write": total_files}
    done = dict.fromkeys(totals, 0)

    def listen(stage: str, amount: int) -> None:
        done[stage] = min(done[stage] + amount, totals[stage])
        if progress is not None:
            progress(done[stage], totals[stage], stage)

    _listener = listen
    try:
        yield
    finally:
        _listener = None


def advance(amount: int, stage: str = "read") -> None:
    """Reports that `amount` more bytes are read (or files written), if anyone listens."""
    if _listener is not None:
        _listener(stage, amount)
