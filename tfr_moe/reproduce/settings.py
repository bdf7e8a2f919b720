"""Settings of a study: typed, in named sizes, changed by `key=value`, and held for the whole folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from tfr_moe.config import parse_pair
from tfr_moe.errors import UserError, describe
from tfr_moe.folders import make_folder, read_json, write_json

_PACKAGE = Path(__file__).resolve().parents[1]
_FOLDERS = [folder / "configs" for folder in (_PACKAGE.parent, _PACKAGE)]
CONFIGS = next((folder for folder in _FOLDERS if (folder / "adv_hsc_moe").is_dir()), _FOLDERS[0])
"""The configs of the papers' tables: beside the package in a checkout, in it where it is installed."""
STUDY_FILE = "study.json"


class Named(Protocol):
    """What has a name, such as a row of a table."""

    @property
    def name(self) -> str:
        """The name."""


NamedRow = TypeVar("NamedRow", bound=Named)
Chosen = TypeVar("Chosen", bound="StudySettings")
PaperTable = TypeVar("PaperTable", bound=BaseModel)


class StudySettings(BaseModel):
    """Base of a study's settings; the defaults are the size `default`.

    Attributes:
        SIZES: for each named size what differs from the defaults.
        MAY_GROW: settings that may differ when a study is resumed, such as the number of runs.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    SIZES: ClassVar[dict[str, dict[str, Any]]] = {"default": {}}
    MAY_GROW: ClassVar[frozenset[str]] = frozenset()


def choose(kind: type[Chosen], size: str, pairs: Sequence[str] = (), **given: Any) -> Chosen:
    """Settings of a size, changed by `given` (None changes nothing) and then by `key=value` pairs.

    Raises:
        UserError: for an unknown size or key, or a value that does not fit.

    Example:
        >>> class Settings(StudySettings):
        ...     runs: int = 3
        >>> choose(Settings, "default", ["runs=5"]).runs
        5
    """
    if size not in kind.SIZES:
        raise UserError(f"--size {size!r}: must be one of {', '.join(kind.SIZES)}")
    values = {**kind.SIZES[size], **{k: v for k, v in given.items() if v is not None}}
    for pair in pairs:
        key, value = parse_pair(pair)
        if key not in kind.model_fields:
            raise UserError(
                f"--set {pair!r}: unknown key; there are: {', '.join(kind.model_fields)}"
            )
        values[key] = value
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise UserError(f"settings: {describe(error, values)}") from error


def hold(out: Path, study: str, settings: StudySettings) -> None:
    """Makes the folder and writes the settings, or checks that the folder was begun with the same.

    Raises:
        UserError: where `out` can't be made, holds something else or another study, or a setting
            differs that decides results.
    """
    wanted = {"study": study, "settings": settings.model_dump(mode="json")}
    path = out / STUDY_FILE
    begun = read_json(path)
    if begun is None:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UserError(f"--out {out}: holds something that is no study; give another folder")
        make_folder(out, f"--out {out}")
    else:
        _check_same(path, begun, wanted, settings.MAY_GROW)
    write_json(path, wanted)


def _check_same(path: Path, begun: Any, wanted: Any, may_grow: frozenset[str]) -> None:
    if begun["study"] != wanted["study"]:
        raise UserError(f"{path}: is of the study {begun['study']!r}; give another --out")
    for name, value in wanted["settings"].items():
        old = begun["settings"].get(name)
        if name not in may_grow and value != old:
            raise UserError(
                f"{path}: was begun with {name}={old!r}, now it is {value!r}; give another --out"
            )


def load_table(folder: Path, kind: type[PaperTable], configs: str) -> PaperTable:
    """A paper's table, from `table.yaml` in a folder of configs.

    Args:
        folder: of the table.
        kind: what a table is.
        configs: where in the repository such folders are, for the error.

    Raises:
        UserError: where it is not there or not one.
    """
    path = folder / "table.yaml"
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        return kind.model_validate(data)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror}); --set configs=FOLDER must name a folder like "
            f"{configs} of the repository"
        ) from error
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not valid YAML ({' '.join(str(error).split())})") from error
    except ValidationError as error:
        raise UserError(f"{path}: {describe(error, data)}") from error


def wanted_rows(rows: Sequence[NamedRow], words: Sequence[str] | None) -> list[NamedRow]:
    """The rows that the words name, in the rows' order; all without words.

    A word that is a row's whole name means that row alone, any other each row that has it in its name.

    Raises:
        UserError: naming a word that no row has, and the rows that there are.
    """
    if words is None:
        return list(rows)
    names = [row.name for row in rows]
    wanted = {name for word in words for name in _named(word, names)}
    return [row for row in rows if row.name in wanted]


def _named(word: str, names: Sequence[str]) -> list[str]:
    same = [name for name in names if name.lower() == word.lower()]
    found = same or [name for name in names if word.lower() in name.lower()]
    if not found:
        raise UserError(f"rows: no row's name has {word!r} in it; there are: {', '.join(names)}")
    return found
