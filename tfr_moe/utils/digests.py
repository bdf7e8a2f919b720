"""SHA-256 digests of a folder's files, which reveal missing, truncated and changed ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, model_validator

import tfr_moe
from tfr_moe.errors import UserError
from tfr_moe.utils.io import read_json, write_json

FORMAT = 1
"""The format of the folders that this version writes and reads."""

FileDigests = Mapping[str, Mapping[str, Any]]
"""Path within a folder -> `bytes`, its size, and `sha256`."""


class _Digest(BaseModel):
    bytes: int
    sha256: str


class ManifestForm(BaseModel):
    """The entries of every manifest; each kind of folder adds others."""

    fingerprint: str | None = None
    files: dict[str, _Digest] | None = None
    versions: dict[str, Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _check_format(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and data.get("format", FORMAT) != FORMAT:
            raise ValueError(
                f"has format {data['format']!r}, written by tfr_moe {writer_of(data)}; tfr_moe "
                f"{tfr_moe.__version__} reads format {FORMAT}"
            )
        return data


def writer_of(manifest: Mapping[str, Any]) -> str:
    """Returns the version of tfr_moe that wrote a manifest."""
    versions = manifest.get("versions")
    return str((versions if isinstance(versions, Mapping) else {}).get("tfr_moe", "(unknown)"))


MODEL_MANIFEST = "assets.extra/manifest.json"
"""Path of the manifest within an exported model, where TensorFlow Serving ignores it."""


def digest_files(folder: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Returns the digests of files, given by their paths within a folder."""
    return {
        name: {"bytes": (folder / name).stat().st_size, "sha256": sha256_of(folder / name)}
        for name in sorted(names)
    }


def fingerprint(digests: FileDigests) -> str:
    """Returns 16 hexadecimal digits that identify names and contents of all files."""
    entries = sorted((name, digest["sha256"]) for name, digest in digests.items())
    return hashlib.sha256(json.dumps(entries).encode()).hexdigest()[:16]


def write_digests(
    folder: Path, path: str, values: Mapping[str, Any], names: Iterable[str]
) -> dict[str, Any]:
    """Writes a manifest: format, version, `values`, and digests as `files` and `fingerprint`.

    Its `path` and the `names` of the files are within the folder. Returns its content.
    """
    digests = digest_files(folder, names)
    written = {"format": FORMAT, "versions": {"tfr_moe": tfr_moe.__version__}}
    manifest = {**written, **values, "fingerprint": fingerprint(digests), "files": digests}
    write_json(folder / path, manifest)
    return manifest


def check_files(
    folder: Path, digests: FileDigests, kind: str, contents: Collection[str] = ()
) -> None:
    """Checks that all files are there with their size, and those of `contents` with their content.

    Raises a UserError that names the first difference; `kind` is `data`, `run` or `model`.
    """
    problems = []
    for name, digest in digests.items():
        path = folder / name
        if not path.is_file():
            problems.append(f"{name} is missing")
        elif (size := path.stat().st_size) != digest["bytes"]:
            problems.append(f"{name} has {size:,} bytes instead of {digest['bytes']:,}")
        elif name in contents and sha256_of(path) != digest["sha256"]:
            problems.append(f"{name} has been changed")
    if problems:
        more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise UserError(f"{kind} {folder}: {problems[0]}{more}; make the {kind} again")


def check_recorded(folder: Path, manifest: str, kind: str) -> None:
    """Compares all files of a folder with its manifest, if it has one with digests."""
    digests = (read_json(folder / manifest, ManifestForm) or {}).get("files") or {}
    check_files(folder, digests, kind, digests)


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, read once for each of its sizes and times of change."""
    stat = path.stat()
    return _sha256(str(path), stat.st_size, stat.st_mtime_ns, stat.st_ino)


@lru_cache(maxsize=4096)
def _sha256(path: str, size: int, modified: int, inode: int) -> str:
    """Cached; size, time and inode make an entry invalid when the file is replaced."""
    with open(path, "rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
