"""Options, checks and the console that several commands share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tfr_moe.errors import UserError

Data = Annotated[Path, typer.Option("--data", help="data-set folder made by `tfr-moe build`")]
Seed = Annotated[int, typer.Option("--seed", help="random seed", min=0)]
BatchSize = Annotated[int, typer.Option("--batch-size", help="lists per batch", min=1)]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="replace --out if it exists")]
Split = Annotated[str, typer.Option("--split", help="train, validation or test")]
SourceModules = Annotated[
    list[str] | None,
    typer.Option("--source-module", help="module to import that registers a source; repeatable"),
]


def stderr() -> Console:
    """The console for progress and notices; stdout is for results."""
    return Console(stderr=True)


def reject_with(option: str, others: Mapping[str, Any]) -> None:
    """Rejects options that cannot be combined with another one.

    Args:
        option: the option that is in use.
        others: value of each option that it excludes; None, False and [] mean that it is absent.

    Raises:
        UserError: naming the first option of `others` that is in use.
    """
    for other in _in_use(others):
        raise UserError(f"{other} cannot be combined with {option}")


def _in_use(options: Mapping[str, Any]) -> list[str]:
    return [
        option
        for option, value in options.items()
        if value is not None and value is not False and value != []
    ]
