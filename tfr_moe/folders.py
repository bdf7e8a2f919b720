"""Folders and small files that appear under their name only when they are complete."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tfr_moe.errors import UserError


@contextmanager
def complete_folder(out: str | Path, overwrite: bool = False) -> Iterator[Path]:
    """Yields a temporary sibling of `out`; when the block ends well it is renamed to `out`.

    When the block fails, nothing is left behind. A process that is killed outright leaves only the
    hidden sibling `.<name>.partial-<process id>`, never a half-written `out`.

    Args:
        out: the folder to make. An empty folder of that name is taken over.
        overwrite: replace a folder of that name; the old one stays until the new one is complete.

    Raises:
        UserError: if `out` is a file, or a folder with something in it and `overwrite` is not set.

    Example:
        >>> import tempfile
        >>> base = Path(tempfile.mkdtemp())
        >>> with complete_folder(base / "data") as folder:
        ...     _ = (folder / "one.txt").write_text("1")
        >>> [path.name for path in (base / "data").iterdir()]
        ['one.txt']
    """
    out = Path(os.path.abspath(out))
    check_free(out, overwrite)
    partial = out.parent / f".{out.name}.partial-{os.getpid()}"
    shutil.rmtree(partial, ignore_errors=True)
    make_folder(partial, str(out), new=True)
    try:
        yield partial
        _replace(partial, out)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def check_free(out: Path, overwrite: bool = False) -> None:
    """Refuses a name that a new folder can't take, for work that takes long before it writes one.

    Args:
        out: the folder to be made. An empty one may be there.
        overwrite: whether a folder with something in it may be there too.

    Raises:
        UserError: if `out` is a file, or a folder that must not be replaced.

    Example:
        >>> check_free(Path("nothing/of/this/name"))
    """
    if out.exists() and not out.is_dir():
        raise UserError(f"{out}: is a file, a folder is to be written here")
    if out.is_dir() and any(out.iterdir()) and not overwrite:
        raise UserError(f"{out}: exists already; give another folder or ask to overwrite it")


def make_folder(path: Path, name: str, new: bool = False) -> None:
    """Makes a folder, with those above it.

    Args:
        path: the folder.
        name: what a message calls it, such as `run shop/moe`.
        new: whether it must not be there yet; otherwise one that is there is kept as it is.

    Raises:
        UserError: if it can't be made, as where a file has its name.

    Example:
        >>> import tempfile
        >>> base = Path(tempfile.mkdtemp())
        >>> make_folder(base / "shop" / "moe", "run shop/moe")
        >>> make_folder(base / "shop", "shop", new=True)
        Traceback (most recent call last):
        tfr_moe.errors.UserError: shop: cannot be made (File exists)
    """
    try:
        path.mkdir(parents=True, exist_ok=not new)
    except OSError as error:
        raise UserError(f"{name}: cannot be made ({error.strerror})") from error


def _replace(partial: Path, out: Path) -> None:
    if not out.exists():
        partial.rename(out)
        return
    old = out.parent / f".{out.name}.old-{os.getpid()}"
    out.rename(old)
    partial.rename(out)
    shutil.rmtree(old)


def write_json(path: Path, data: Any) -> None:
    """Writes JSON under a temporary name, then renames it."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def read_json(path: Path) -> Any:
    """Reads JSON; None where the file is not there."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
