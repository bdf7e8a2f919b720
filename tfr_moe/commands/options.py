"""What several commands share: their common options, and where their words go."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

Data = Annotated[Path, typer.Option("--data", help="data-set folder made by `tfr-moe build`")]
Seed = Annotated[int, typer.Option("--seed", help="seed of everything random", min=0)]


def stderr() -> Console:
    """The console for progress and notices; stdout is for results."""
    return Console(stderr=True)
