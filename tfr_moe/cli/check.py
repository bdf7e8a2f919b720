"""Command that verifies what other commands made: check."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tfr_moe.errors import UserError


def check(
    path: Annotated[Path, typer.Argument(help="data set, run, or a version of an exported model")],
) -> None:
    """Verify the files of a data set, run or export.

    Every file is compared with the SHA-256 that was recorded when it was made.

    Example: tfr-moe check data
    """
    from tfr_moe.schema import MANIFEST_FILE
    from tfr_moe.utils.digests import MODEL_MANIFEST, ManifestForm, check_files
    from tfr_moe.utils.io import read_json

    if not path.is_dir():
        raise UserError(f"{path}: no such folder")
    if (path / "saved_model.pb").is_file():
        kind, manifest = "model", read_json(path / MODEL_MANIFEST, ManifestForm) or {}
    else:
        manifest = read_json(path / MANIFEST_FILE, ManifestForm)
        if manifest is None:
            raise UserError(
                f"{path}: holds no {MANIFEST_FILE}, so it is no data set, run or exported version "
                "(MODELS/NAME/VERSION)"
            )
        kind = "run" if "data" in manifest else "data"
    digests = manifest.get("files")
    if digests is None:
        raise UserError(f"{path}: has no digests to compare with; make the {kind} again")
    if kind == "data":
        from tfr_moe.data import DataFolder

        DataFolder(path).check()
    else:
        check_files(path, digests, kind, digests)
    size = sum(digest["bytes"] for digest in digests.values())
    print(f"{path}: {len(digests)} files, {size:,} bytes, as recorded")
    print(f"fingerprint {manifest['fingerprint']}")
