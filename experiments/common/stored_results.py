"""Per-list results in files, so that tests and figures need no model."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np

from tfr_moe.errors import UserError
from tfr_moe.evaluation import PerListResult

_PARTS = ("list_ids", "num_items", "num_relevant")


def save_result(result: PerListResult, path: Path) -> None:
    """Writes a result to an `.npz` archive, which appears under its name only when complete."""
    arrays = {
        "list_ids": result.list_ids.astype(str),
        "num_items": result.num_items,
        "num_relevant": result.num_relevant,
        **{f"value_{name}": values for name, values in result.values.items()},
        **{f"nothing_{name}": flags for name, flags in result.nothing_relevant.items()},
    }
    if result.categories is not None:
        arrays["categories"] = result.categories.astype(str)
    temporary = path.with_name(f".{path.name}.tmp.npz")
    np.savez_compressed(temporary, **arrays)
    os.replace(temporary, path)


def load_result(path: Path) -> PerListResult:
    """Reads an archive of `save_result`.

    Raises:
        UserError: if the file is no such archive.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = dict(archive)
        parts = {name: arrays.pop(name) for name in _PARTS}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: holds no per-list result ({error})") from error
    categories = arrays.pop("categories", None)
    return PerListResult(
        list_ids=parts["list_ids"].astype(object),
        values={n.removeprefix("value_"): v for n, v in arrays.items() if n.startswith("value_")},
        nothing_relevant={
            n.removeprefix("nothing_"): v for n, v in arrays.items() if n.startswith("nothing_")
        },
        num_items=parts["num_items"],
        num_relevant=parts["num_relevant"],
        categories=None if categories is None else categories.astype(object),
    )
