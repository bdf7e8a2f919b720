"""Errors of files, disks and broken formats as one line."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tfr_moe.errors import UserError
from tfr_moe.utils.digests import MODEL_MANIFEST, check_recorded

GRAPH_ERROR = "invalid input: "
"""The start of the messages of assertions in graphs, by which `file_failure` finds them."""

_GRAPH_ERROR = re.compile(re.escape(GRAPH_ERROR) + r"[^\]\n]*")
_NOT_OF_FILES = {errno.EPIPE, errno.EINTR, errno.EAGAIN}
_NODE = re.compile(r"\{\{.*?\}\}|\[\[.*?\]\]|\[Op:\w+\]")
_NOISE = ("Graph execution error", "Detected at node", "<stack traces", "File ", "total number of")
# What Python and Beam raise as a RuntimeError where memory or threads are limited.
_NO_MEMORY = re.compile(r"MemoryError\b|can't start new thread")


def reason_of(error: BaseException) -> str:
    """Returns the message of any error in one line, without TensorFlow's nodes and stack traces."""
    text = _NODE.sub("", str(getattr(error, "message", None) or error))
    lines = [line.strip() for line in text.splitlines()]
    frames = [number for number, line in enumerate(lines) if line.startswith(_NOISE)]
    useful = [line for line in lines[frames[-1] + 1 if frames else 0 :] if line] or lines
    return " ".join(" ".join(useful).split()).strip(" ;") or type(error).__name__


def file_failure(error: BaseException) -> str | None:
    """Returns one line for an error of a file or of the system; None for any other error.

    These are errors of the operating system (no space, no permission, no such file), those of them
    that TensorFlow reports, a lack of memory, and values in records that a graph has rejected.
    """
    no_memory = isinstance(error, RuntimeError) and _NO_MEMORY.match(str(error))
    if no_memory or isinstance(error, MemoryError):
        return f"out of memory ({reason_of(error)})"
    if isinstance(error, OSError):
        return _os_failure(error)
    if "tensorflow" in sys.modules:
        return _tensorflow_failure(error)
    return None


def _os_failure(error: OSError) -> str | None:
    """The line of an `OSError`; None for one that is not of files."""
    if error.errno in _NOT_OF_FILES:
        return None
    if not error.strerror:
        return reason_of(error)
    return f"{os.fsdecode(error.filename)}: {error.strerror}" if error.filename else error.strerror


def _tensorflow_failure(error: BaseException) -> str | None:
    """The line of an error of TensorFlow about files, or of an assertion about their content."""
    from tfr_moe._compat import tf

    kinds = tf.errors
    if not isinstance(error, kinds.OpError):
        return None
    if match := _GRAPH_ERROR.search(error.message):
        return match[0]
    # Invalid arguments and internal errors are defects of the program.
    of_files = (
        kinds.NotFoundError,
        kinds.PermissionDeniedError,
        kinds.ResourceExhaustedError,
        kinds.DataLossError,
        kinds.OutOfRangeError,
        kinds.FailedPreconditionError,
        kinds.AlreadyExistsError,
    )
    is_unknown = error.error_code == kinds.UNKNOWN and "Traceback" not in error.message
    return reason_of(error) if is_unknown or isinstance(error, of_files) else None


@contextmanager
def file_errors(what: str) -> Iterator[None]:
    """Turns what `file_failure` describes inside the block into a UserError that names `what`."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        reason = file_failure(error)
        if reason is None:
            raise
        raise UserError(reason if GRAPH_ERROR in reason else f"{what}: {reason}") from error


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turns every error inside the block, which only loads a file, into a UserError of one line.

    Libraries raise all kinds of errors over a broken file of their own format.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{what} cannot be read ({reason_of(error)})") from error


def load_saved_model(folder: Path) -> Any:
    """Loads a SavedModel; a UserError if files differ from its manifest, or it cannot be loaded."""
    from tfr_moe._compat import tf

    check_recorded(folder, MODEL_MANIFEST, "model")
    with reading(f"model {folder}: the SavedModel"):
        return tf.saved_model.load(str(folder))
