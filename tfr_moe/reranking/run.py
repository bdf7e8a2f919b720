"""One command: folds, rankers, scores and the new data set, resumed after a kill."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from tfr_moe.comparison import train_model
from tfr_moe.config import RunConfig
from tfr_moe.data import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.folders import check_free, complete_folder, make_folder, read_json, write_json
from tfr_moe.reranking.folds import make_folds
from tfr_moe.reranking.lists import (
    SCORE,
    record_writer,
    reordered,
    scored_records,
    with_initial_list,
)
from tfr_moe.schema import MANIFEST_FILE, SCHEMA_FILE, STATISTICS_FILE, FeatureSchema, shard_file


def rerank_data(
    data: str | Path,
    out: str | Path,
    config: RunConfig,
    folds: int = 5,
    console: Console | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Makes a data set of initial lists; the same call goes on where a killed one stopped.

    Until it is complete, the folds and the rankers stand in the hidden folder `.<name>.work` beside it.

    Args:
        data: the data-set folder.
        out: the folder to make.
        config: the settings of the ranker, of any model.
        folds: k.
        console: where progress goes; None for stderr.
        overwrite: replace `out`.

    Returns:
        Per split the number of lists.

    Raises:
        UserError: for data, settings or folders that don't fit.
    """
    console = console or Console(stderr=True)
    folder, out = DataFolder(data), Path(out)
    if folds < 2:
        raise UserError(f"folds must be 2 or more, got {folds}")
    check_free(out, overwrite)
    schema = with_initial_list(folder.schema)
    splits = [split for split in ("validation", "test") if folder.num_lists(split) != 0]
    work = out.parent / f".{out.name}.work"
    _hold(
        work, {"data": str(folder.path.resolve()), "folds": folds, **config.model_dump(mode="json")}
    )
    make_folds(folder, work, folds, console)
    parts: dict[str, list[tuple[Path, str, Path]]] = {"train": []}
    for fold in range(folds):
        without = work / f"without-{fold}"
        run = _trained(
            without, work / "runs" / str(fold), config, f"fold {fold + 1}/{folds}", console
        )
        parts["train"].append((without, "test", run))
    everything = _trained(folder.path, work / "runs" / "all", config, "all of train", console)
    for split in splits:
        parts[split] = [(folder.path, split, everything)]
    with complete_folder(out, overwrite) as partial:
        counts = _write(folder, partial, parts, schema, console)
        _describe(folder, partial, schema, counts, config, folds)
    shutil.rmtree(work)
    return {split: found["lists"] for split, found in counts.items()}


def _hold(work: Path, options: dict[str, Any]) -> None:
    path = work / "options.json"
    begun = read_json(path)
    if begun is not None and begun != options:
        names = [name for name in options if begun.get(name) != options[name]]
        raise UserError(
            f"{work}: was begun with another {', '.join(names)}; give the same again, or remove it"
        )
    make_folder(work, str(work))
    write_json(path, options)


def _trained(data: Path, run: Path, config: RunConfig, what: str, console: Console) -> Path:
    console.print(f"{config.model} on {what}", highlight=False)
    train_model(data, run, config, console)
    return run


def _write(
    folder: DataFolder,
    out: Path,
    parts: dict[str, list[tuple[Path, str, Path]]],
    schema: FeatureSchema,
    console: Console,
) -> dict[str, dict[str, float]]:
    """Writes the records; per split the numbers of lists and items, and moments of the scores."""
    counts = {}
    for split, sources in parts.items():
        found: dict[str, Any] = {"lists": 0, "items": 0}
        seen = []
        for number, (data, part, run) in enumerate(sources):
            with (
                console.status(f"scoring {split} {number + 1}/{len(sources)}"),
                record_writer(out / shard_file(split, number, len(sources))) as writer,
            ):
                for record, scores in scored_records(data, part, run):
                    writer.write(reordered(record, scores, schema))
                    found["lists"] += 1
                    found["items"] += len(scores)
                    seen.append(_sums(scores))
        counts[split] = {**found, **_moments(np.array(seen))}
    return counts


def _sums(scores: Any) -> tuple[float, ...]:
    values = np.asarray(scores, np.float64)
    return len(values), values.sum(), np.square(values).sum(), values.min(), values.max()


def _moments(sums: Any) -> dict[str, float]:
    """Mean, deviation, least and greatest from the sums of the lists."""
    count, total, squares = sums[:, 0].sum(), sums[:, 1].sum(), sums[:, 2].sum()
    mean = total / count
    std = float(np.sqrt(max(0.0, squares / count - mean**2)))
    return {
        "count": int(count),
        "mean": float(mean),
        "std": std,
        "min": float(sums[:, 3].min()),
        "max": float(sums[:, 4].max()),
    }


def _describe(
    folder: DataFolder,
    out: Path,
    schema: FeatureSchema,
    counts: dict[str, dict[str, float]],
    config: RunConfig,
    folds: int,
) -> None:
    """Schema, statistics, vocabularies and manifest of the new set."""
    folder.copy_description(out)
    (out / SCHEMA_FILE).unlink()
    schema.save(out / SCHEMA_FILE)
    of_train = {k: counts["train"][k] for k in ("count", "mean", "std", "min", "max")}
    statistics: dict[str, Any] = dict(folder.statistics)
    statistics["example"] = {**statistics.get("example", {}), SCORE: of_train}
    write_json(out / STATISTICS_FILE, statistics)
    manifest: dict[str, Any] = {"format": 1}
    if (folder.path / MANIFEST_FILE).is_file():
        manifest = dict(folder.manifest)
    manifest["splits"] = {
        split: {"lists": found["lists"], "items": found["items"]} for split, found in counts.items()
    }
    manifest["initial_lists"] = {
        "data": str(folder.path.resolve()),
        "folds": folds,
        "ranker": config.model_dump(mode="json", exclude_defaults=True),
    }
    write_json(out / MANIFEST_FILE, manifest)
