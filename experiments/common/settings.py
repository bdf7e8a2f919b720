"""Settings of a study: typed, in named sizes, changed by `key=value`, fixed for its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict

from tfr_moe.errors import UserError, validated
from tfr_moe.utils import make_folder, parse_pair, read_json, write_json

STUDY_FILE = "study.json"

Chosen = TypeVar("Chosen", bound="StudySettings")


class StudySettings(BaseModel):
    """Base of a study's settings; the defaults are the size `default`.

    Attributes:
        SIZES: for each named size what differs from the defaults.
        MAY_GROW: settings that may differ when a study is resumed, such as the number of runs.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    SIZES: ClassVar[dict[str, dict[str, Any]]] = {"default": {}}
    MAY_GROW: ClassVar[frozenset[str]] = frozenset()


def choose(kind: type[Chosen], size: str, pairs: Sequence[str] = (), **values: Any) -> Chosen:
    """Returns settings of a size, changed by `values` (None is ignored), then by `key=value` pairs.

    Raises:
        UserError: for an unknown size or key, or an invalid value.

    Example:
        >>> class Settings(StudySettings):
        ...     runs: int = 3
        >>> choose(Settings, "default", ["runs=5"]).runs
        5
    """
    if size not in kind.SIZES:
        raise UserError(f"--size {size!r}: must be one of {', '.join(kind.SIZES)}")
    chosen = {**kind.SIZES[size], **{k: v for k, v in values.items() if v is not None}}
    for pair in pairs:
        key, value = parse_pair(pair)
        if key not in kind.model_fields:
            raise UserError(
                f"--set {pair!r}: unknown key; must be one of {', '.join(kind.model_fields)}"
            )
        chosen[key] = value
    return validated(kind, chosen, "settings")


def open_folder(out: Path, study: str, settings: StudySettings) -> None:
    """Creates the folder and writes the settings, or checks that it has the same ones already.

    A study that has written nothing else, because it rejected its settings, gets the new ones.

    Raises:
        UserError: if `out` can't be created, holds other files or another study, or if a setting
            that affects results differs.
    """
    wanted = {"study": study, "settings": settings.model_dump(mode="json")}
    path = out / STUDY_FILE
    stored = read_json(path)
    if not out.exists() or (out.is_dir() and not set(out.iterdir()) - {path}):
        make_folder(out, f"--out {out}")
    elif stored is None:
        raise UserError(f"--out {out}: holds other files than a study; give another folder")
    else:
        _check_same(path, stored, wanted, settings.MAY_GROW)
    write_json(path, wanted)


def _check_same(path: Path, stored: Any, wanted: Any, may_grow: frozenset[str]) -> None:
    if stored["study"] != wanted["study"]:
        raise UserError(f"{path}: belongs to the study {stored['study']!r}; give another --out")
    for name, value in wanted["settings"].items():
        old = stored["settings"].get(name)
        if name not in may_grow and value != old:
            raise UserError(
                f"{path}: was started with {name}={old!r}, now it is {value!r}; give another --out"
            )
