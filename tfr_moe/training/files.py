"""Small files that are either whole or not there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write_json(path: Path, data: Any) -> None:
    """Writes JSON under a temporary name, then renames it."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def read_json(path: Path) -> Any:
    """Reads JSON; None where the file is not there."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
