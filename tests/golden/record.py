"""The golden numbers: `python -m tests.golden.record` computes all and writes `golden.json`.

It is run when a number is meant to change; the difference of the file then says which.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.golden import measures, models, runs

FILE = Path(__file__).with_name("golden.json")
DIGITS = 9


def trained(model: str) -> dict[str, Any]:
    """The numbers of a training in a folder that is removed after it."""
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        return runs.numbers(model, Path(folder))


PARTS: dict[str, tuple[tuple[str, ...], Callable[[str], Any]]] = {
    "models": (tuple(models.CASES), models.numbers),
    "losses": (measures.LOSSES, measures.loss),
    "metrics": (measures.METRICS, measures.metric),
    "keras metrics": (measures.KERAS_METRICS, measures.keras_metric),
    "significance": (("all",), lambda _: measures.significance()),
    "runs": (tuple(runs.CASES), trained),
}
"""Part of the file -> the names of its entries, and what computes the numbers of one."""


def plain(value: Any) -> Any:
    """Numbers as the file has them: of few digits, and NaN, which JSON lacks, as None."""
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


def compute() -> dict[str, Any]:
    """All numbers."""
    return {
        part: {name: plain(numbers(name)) for name in names}
        for part, (names, numbers) in PARTS.items()
    }


def write(result: dict[str, Any], path: Path = FILE) -> None:
    """Writes the numbers with sorted keys and each list of them on one line."""
    text = json.dumps(result, indent=1, sort_keys=True, allow_nan=False)
    text = re.sub(r"\[[^][{}]*\]", lambda match: " ".join(match[0].split()), text)
    path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(compute())
