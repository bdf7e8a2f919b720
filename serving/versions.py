"""The folder layout that TensorFlow Serving reads: MODELS/NAME/<version>/."""

from __future__ import annotations

from pathlib import Path

from tfr_moe.errors import UserError


def versions_of(folder: Path) -> list[int]:
    """The versions below a model's folder, oldest first: the sub-folders whose name is a number."""
    return sorted(int(p.name) for p in folder.iterdir() if p.name.isdecimal() and p.is_dir())


def models_of(root: Path) -> dict[str, list[int]]:
    """The models below `root` that have a version, by name.

    Raises:
        UserError: if `root` is no folder, is itself the folder of one model, or has no model.
    """
    if not root.is_dir():
        raise UserError(f"models folder {root}: does not exist")
    if versions_of(root):
        raise UserError(
            f"models folder {root}: is the folder of one model; give the folder above it, {root.parent}"
        )
    found = {p.name: versions_of(p) for p in sorted(root.iterdir()) if p.is_dir()}
    models = {name: versions for name, versions in found.items() if versions}
    if not models:
        raise UserError(f"models folder {root}: has no model; a model is NAME/<version>/")
    return models
