"""Commands that list what there is: models, losses, metrics, settings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.table import Table

from tfr_moe.errors import UserError


def _print(headers: Iterable[str], rows: Iterable[tuple[str, ...]]) -> None:
    """Prints a table whose first column is never cut; as wide as it needs in a file."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, header in enumerate(headers):
        table.add_column(header, no_wrap=number == 0, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table, highlight=False, markup=False)


def models() -> None:
    """List the models.

    Example: tfr-moe models
    """
    from tfr_moe.config import MODELS

    _print(("model", "what it is"), ((name, spec.summary) for name, spec in MODELS.items()))


def losses() -> None:
    """List the losses that `--set loss=` takes.

    Example: tfr-moe losses
    """
    from tfr_moe.losses import summaries

    _print(("loss", "what it is"), summaries().items())


def metrics() -> None:
    """List the metrics that `--metric` and `--set metrics=` take.

    Example: tfr-moe metrics
    """
    from tfr_moe.metrics.naming import SUMMARIES

    _print(("metric", "what it is"), SUMMARIES.items())


def settings(
    model: Annotated[str | None, typer.Argument(help="a model; without it, all settings")] = None,
) -> None:
    """List the settings of a model with their defaults.

    Example: tfr-moe settings adv_hsc_moe
    """
    from tfr_moe.config import MODELS, SETTINGS

    if model is not None and model not in MODELS:
        raise UserError(f"model {model!r} is unknown; allowed: {', '.join(MODELS)}")
    spec = MODELS[model or "adv_hsc_moe"]
    names = SETTINGS if model is None else [n for n in SETTINGS if n in spec.settings]
    _print(
        ("setting", "default", "what it is"),
        ((n, _text(spec.default(n)), SETTINGS[n].field.description or "") for n in names),
    )


def _text(value: Any) -> str:
    """A default as `--set` takes it."""
    plain = list(value) if isinstance(value, tuple) else value
    return yaml.safe_dump(plain, default_flow_style=True, width=1000).split("\n")[0]
