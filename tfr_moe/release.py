"""A finished run as a SavedModel for serving, warmed up with real lists of its data."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from rich.console import Console

from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.errors import UserError
from tfr_moe.scorers import explanation_model
from tfr_moe.serving.export import export_model
from tfr_moe.training import load_run

_LOOKED_AT = 1000
_WARMUP_LISTS = 16


def warmup_lists(data: DataFolder) -> list[bytes]:
    """Serialized validation lists from the shortest to the longest of the first thousand."""
    records = ElwcDatasetBuilder(data).serialized_lists("validation")
    found = sorted((r.numpy() for r in islice(iter(records), _LOOKED_AT)), key=len)
    if len(found) <= _WARMUP_LISTS:
        return found
    step = (len(found) - 1) / (_WARMUP_LISTS - 1)
    return [found[round(i * step)] for i in range(_WARMUP_LISTS)]


def export_run(
    run: str | Path,
    out: str | Path,
    data: str | Path | None = None,
    version: int | None = None,
    console: Console | None = None,
) -> Path:
    """Exports the best epoch of a run, noise, dropout and regularisers left out.

    Args:
        run: the run's folder.
        out: `MODELS/NAME`.
        data: the data set whose validation lists warm the server up; None for the one that the run
            was trained on. Where that is gone, lists of defaults stand in, with a warning.
        version: see `export_model`.
        console: where progress goes; None for stderr.

    Returns:
        The folder of the version.

    Raises:
        UserError: as `load_run` and `export_model`.
    """
    console = console or Console(stderr=True)
    loaded = load_run(run)
    where = data if data is not None else loaded.metrics.get("data", "")
    try:
        lists = warmup_lists(DataFolder(where))
    except UserError as error:
        if data is not None:
            raise
        console.print(f"warning: no real lists for the warm-up: {error}", soft_wrap=True)
        lists = []
    details = {"config": loaded.config.model_dump(mode="json"), "metrics": loaded.metrics}
    with console.status(f"exporting {run} and checking it in a fresh process"):
        return export_model(
            loaded.ranker(),
            loaded.schema,
            out,
            explanation=explanation_model(loaded.model),
            warmup=lists,
            details=details,
            version=version,
        )
