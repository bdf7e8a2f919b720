"""Folders and small files that appear under their name only when complete."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from tfr_moe.errors import UserError, validated

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def atomic_directory(out: str | Path, overwrite: str | None = None) -> Iterator[Path]:
    """Yields a temporary sibling of `out`, which is renamed to `out` when the block ends.

    If the block raises, nothing is left behind. A killed process leaves the hidden sibling
    `.<name>.partial`, never an incomplete `out`; the next call for `out` removes it. The sibling is
    locked while the block runs. Where `out` is a symbolic link, the folder it points to is made.

    Args:
        out: the folder to make. An empty folder of that name is replaced.
        overwrite: a folder of that name that holds this file is replaced, once the new one is
            complete; None to replace none.

    Raises:
        UserError: if `out` is a file, or a folder that may not be replaced, or if another process
            is writing it.
    """
    out = Path(os.path.realpath(out))
    old = out.parent / f".{out.name}.old"
    with working_directory(out) as partial:
        if old.is_dir() and not out.exists():
            old.rename(out)
        check_free(out, overwrite)
        shutil.rmtree(old, ignore_errors=True)
        yield partial
        if out.exists():
            check_free(out, overwrite)
            out.rename(old)
        partial.rename(out)
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def working_directory(out: Path) -> Iterator[Path]:
    """Yields the hidden, empty folder `.<name>.partial` beside `out`, and removes it afterwards.

    It is locked while the block runs. What a killed process left in it is removed first. Raises a
    UserError if it cannot be made, another process has it, or the disk is full.
    """
    partial = out.parent / f".{out.name}.partial"
    lock = _lock(partial, out)
    try:
        for path in partial.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        yield partial
    except OSError as error:
        # Writing to an open file fails without its name.
        if error.filename is None and error.errno in _FULL:
            raise UserError(f"{out}: {error.strerror}") from error
        raise
    finally:
        # The block may have renamed the folder, and another process have made the next one.
        if _is_locked_by(lock, partial):
            shutil.rmtree(partial, ignore_errors=True)
        os.close(lock)


def _is_locked_by(lock: int, folder: Path) -> bool:
    return folder.exists() and os.path.samestat(os.fstat(lock), folder.stat())


def _lock(partial: Path, out: Path) -> int:
    """Makes a folder and locks it; returns the descriptor that holds the lock."""
    while True:
        make_folder(partial, str(out))
        try:
            lock = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError as error:
            raise UserError(f"{partial}: cannot be written ({error.strerror})") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The process that held the lock may have renamed the folder in the meantime.
            if _is_locked_by(lock, partial):
                return lock
        except BlockingIOError:
            os.close(lock)
            raise UserError(f"{out}: is being written by another process") from None
        os.close(lock)


def check_free(out: Path, overwrite: str | None = None) -> None:
    """A UserError if `out` is a file, or a folder neither empty nor with the file `overwrite`."""
    if out.exists() and not out.is_dir():
        raise UserError(f"{out}: is a file, must be a folder")
    if not out.is_dir() or not any(out.iterdir()):
        return
    if overwrite is None:
        raise UserError(f"{out}: exists already; give another folder or overwrite it")
    if not (out / overwrite).is_file():
        raise UserError(f"{out}: is not overwritten, because it has no {overwrite}")


def check_free_file(out: Path, overwrite: bool, inputs: Iterable[str | Path] = ()) -> None:
    """Raises a UserError if `out` is a folder, is one of the inputs, or exists and may not be
    replaced."""
    if out.is_dir():
        raise UserError(f"{out}: is a folder, must be a file")
    if out.exists() and not overwrite:
        raise UserError(f"{out}: exists already; give another name or overwrite it")
    if os.path.realpath(out) in map(os.path.realpath, inputs):
        raise UserError(f"{out}: is an input; give another name")


def check_inputs_outside(out: str | Path, inputs: Iterable[str | Path]) -> None:
    """Raises a UserError where replacing the folder `out` would delete an input."""
    replaced = Path(os.path.realpath(out))
    for path in inputs:
        real = Path(os.path.realpath(path))
        if replaced == real or replaced in real.parents:
            raise UserError(f"out {out}: contains the input {path}; choose another folder")


def make_folder(path: Path, name: str) -> None:
    """Makes a folder and its parents; a UserError has its `name`, such as `run shop/moe`."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{name}: cannot be made ({error.strerror})") from error


def write_text(path: Path, text: str) -> None:
    """Writes a text under a temporary name, then renames it; nothing is left if that fails."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        if error.filename == str(temporary):
            error.filename = str(path)  # the name that the user knows
        raise


def plain(value: Any) -> Any:
    """Converts a value to what JSON has: dataclasses to dicts, NaN to None, at any depth."""
    return json.loads(TypeAdapter(Any).dump_json(value))


def write_json(path: Path, data: Any) -> None:
    """Writes JSON under a temporary name, then renames it."""
    write_text(path, json.dumps(data, indent=1) + "\n")


def read_json(path: Path, form: Any = dict[str, Any]) -> Any:
    """Reads JSON; None if the file does not exist.

    Raises a UserError if it cannot be read, or that names the entry that is not of the type `form`,
    by pydantic's rules.
    """
    if not path.is_file():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or f"not valid JSON: {error}"
        raise UserError(f"{path}: cannot be read ({reason})") from error
    validated(form, data, str(path))
    return data
