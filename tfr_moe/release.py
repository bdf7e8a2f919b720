"""A finished run as a SavedModel for serving, warmed up with real lists of its data."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console

from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.errors import UserError
from tfr_moe.schema import PAIR_SEPARATOR, vocabulary_file
from tfr_moe.scorers import explanation_model
from tfr_moe.scorers.narrow import HALF_TOLERANCE
from tfr_moe.serving.card import Coverage, Sample, coverage_of, model_card, sample_of
from tfr_moe.serving.export import Truth, export_model
from tfr_moe.serving.warmup import fitting
from tfr_moe.training import LoadedRun, load_run
from tfr_moe.variants import ExportOptions, applied, renumbered

_LOOKED_AT = 1000
_WARMUP_LISTS = 16


def validation_lists(data: DataFolder) -> list[bytes]:
    """The first thousand validation lists, serialized."""
    records = ElwcDatasetBuilder(data).serialized_lists("validation")
    return [record.numpy() for record in islice(iter(records), _LOOKED_AT)]


def spread_by_size(lists: Sequence[bytes], sizes: Sequence[int]) -> list[bytes]:
    """At most 16 lists from the shortest to the longest, of as many sizes as there are.

    Args:
        lists: serialized lists.
        sizes: the number of items of each.

    Example:
        >>> spread_by_size([b"a", b"bb", b"c", b"dd"], [1, 2, 1, 2])
        [b'a', b'bb', b'c', b'dd']
    """
    order = sorted(range(len(lists)), key=lambda i: (sizes[i], i))
    first_of_size = list({sizes[i]: i for i in reversed(order)}.values())[::-1]
    taken = set(first_of_size)
    rest = [i for i in order if i not in taken]
    chosen = _evenly(first_of_size, _WARMUP_LISTS)
    chosen += _evenly(rest, _WARMUP_LISTS - len(chosen))
    return [lists[i] for i in sorted(chosen)]


def _evenly(values: Sequence[int], count: int) -> list[int]:
    """As many as `count` of the values, first and last among them."""
    if len(values) <= count:
        return list(values)
    return [values[round(i * (len(values) - 1) / max(count - 1, 1))] for i in range(count)]


def category_coverage(run: LoadedRun, sample: Sample) -> list[Coverage]:
    """How many of the lists have a category that the run's model knows; none without a vocabulary."""
    hierarchy = run.schema.hierarchy
    if hierarchy is None:
        return []
    path = run.path / vocabulary_file(hierarchy.child)
    if not path.is_file():
        return []
    known = path.read_text(encoding="utf-8").splitlines()
    return coverage_of(sample.categories, known, PAIR_SEPARATOR)


def _manifest(data: DataFolder | None) -> dict[str, Any]:
    if data is None or data.num_lists("train") is None:
        return {}
    return data.manifest


def export_run(
    run: str | Path,
    out: str | Path,
    data: str | Path | None = None,
    version: int | None = None,
    console: Console | None = None,
    options: ExportOptions | None = None,
) -> Path:
    """Exports the best epoch of a run, noise, dropout and regularisers left out.

    Args:
        run: the run's folder.
        out: `MODELS/NAME`.
        data: the data set whose validation lists warm the server up; None for the one that the run
            was trained on. Where that is gone, lists of defaults stand in, with a warning.
        version: see `export_model`.
        console: where progress goes; None for stderr.
        options: how the export differs from the run's model; None for not at all. Whatever it is, its
            answers are compared with those of the run's model.

    Returns:
        The folder of the version.

    Raises:
        UserError: as `load_run`, `tfr_moe.variants.applied` and `export_model`.
    """
    console = console or Console(stderr=True)
    loaded = load_run(run)
    where = data if data is not None else loaded.metrics.get("data", "")
    folder: DataFolder | None = None
    lists: list[bytes] = []
    try:
        folder = DataFolder(where)
        lists = validation_lists(folder)
    except UserError as error:
        if data is not None:
            raise
        console.print(f"warning: no real lists for the warm-up: {error}", soft_wrap=True)
    sample = sample_of(loaded.schema, lists)
    details = {
        "config": loaded.config.model_dump(mode="json"),
        "metrics": loaded.metrics,
        "data": _manifest(folder),
    }
    name = Path(out).resolve().name
    coverage = category_coverage(loaded, sample)
    options = options or ExportOptions()
    plain = loaded.ranker()
    truth: Truth | None = Truth(plain, explanation_model(plain))
    if options.precision == "bfloat16":
        truth = Truth(plain, explanation_model(plain), HALF_TOLERANCE, of_largest=True)
    elif loaded.config.precision != "float32":
        truth = None  # its own rounding unit is what it is held to
    with console.status(f"exporting {run} and checking it in a fresh process"):
        variant = applied(loaded, options)
        ranker = variant.run.ranker()
        explanation = explanation_model(ranker)
        if explanation is not None and variant.experts:
            explanation = renumbered(explanation, variant.experts)
        fit = fitting(loaded.schema, lists, options.list_size, variant.categories)
        return export_model(
            ranker,
            loaded.schema,
            out,
            explanation=explanation,
            warmup=spread_by_size(fit, sample_of(loaded.schema, fit).sizes),
            details={**details, "options": options._asdict()},
            card=model_card(name, loaded.schema, details, sample, coverage, variant.sentences),
            version=version,
            truth=truth,
            list_size=options.list_size,
            categories=variant.categories,
            refuse_others=not options.unknown_categories,
            tracing=variant.tracing,
        )
