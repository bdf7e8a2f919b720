"""Files of rejected rows: one object a line, with file, line, reason and the row as it stood."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Reject = tuple[int, int, str, Any]
"""(index of the file, line, reason, row)"""


def write_rejects(index: int, found: Iterable[Reject], files: Sequence[str], folder: str) -> str:
    """Writes the rejects of one input file; returns the path.

    Args:
        index: number of the input file.
        found: its rejects, in the order of their lines.
        files: names of all input files.
        folder: where to write.
    """
    path = Path(folder, f"rejects-{index:05d}-of-{len(files):05d}.jsonl")
    with open(path, "w", encoding="utf-8", newline="\n", errors="backslashreplace") as out:
        for file, line, reason, row in found:
            reject = {"file": files[file], "line": line, "reason": reason, "row": row}
            out.write(json.dumps(reject, default=str) + "\n")
    return str(path)
