"""Fig. 4 of Adv & HSC-MoE: the gain over DNN in buckets of categories of similar training size."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field
from rich.console import RenderableType
from rich.table import Table

from tfr_moe.errors import UserError
from tfr_moe.folders import write_json
from tfr_moe.reproduce.fair_runs import FairSettings, fair_runs, judged_data, results_of
from tfr_moe.reproduce.mixture_tables import (
    COLUMN,
    cells_of,
    need_hierarchy,
    read_table,
)
from tfr_moe.reproduce.plots import COLOURS, MARKS, drawn
from tfr_moe.reproduce.settings import wanted_rows
from tfr_moe.reproduce.study import Place, Study

if TYPE_CHECKING:
    from tfr_moe.data import DataFolder
    from tfr_moe.evaluation.result import PerListResult

NAME = "adv-hsc-moe-fig4"
BASELINE = "DNN"
METRIC = "session_auc"
NAMES = {"top": "top categories", "sub": "sub-categories"}


class GainSettings(FairSettings):
    """The settings of Fig. 4.

    Attributes:
        table: whose rows: `table3`, or another folder of the configs.
        level: whether buckets are of `top` categories or of `sub`-categories.
        buckets: number of buckets, each of about as many categories.
        edges: numbers of training lists that buckets begin at, in place of `buckets`.
    """

    table: str = "table3"
    level: Literal["top", "sub"] = "top"
    buckets: int = Field(5, ge=1)
    edges: tuple[int, ...] | None = Field(None, min_length=1)


def gains(
    results: Mapping[str, Sequence[PerListResult]],
    sizes: Mapping[str, int],
    cut: int | Sequence[int],
    metric: str = METRIC,
    baseline: str = BASELINE,
) -> list[dict[str, Any]]:
    """Per bucket, smallest categories first, the gain of each model with its interval over seeds and lists.

    Args:
        results: per model the results of its runs, with categories.
        sizes: per category its number of training lists.
        cut: how many buckets of about as many categories, or the sizes that buckets begin at.
        metric: what gains are of.
        baseline: the model that gains are over.

    Returns:
        Per bucket `name`, `categories`, `training_lists`, `judged` and `gains`: model -> `difference`,
        `low`, `high`.

    Raises:
        UserError: where the baseline has no run, or the results no categories.
    """
    from tfr_moe.evaluation.significance import compare_runs

    if baseline not in results:
        raise UserError(f"rows: gains are over {baseline}, which must be among them")
    first = results[baseline][0]
    if first.categories is None:
        raise UserError("the runs' lists have no categories")
    buckets = _buckets(first.categories.astype(str), sizes, cut)
    found = []
    for number, members in enumerate(buckets, start=1):
        kept = {
            model: [_only(result, members) for result in runs] for model, runs in results.items()
        }
        judged = _judged(kept[baseline][0], metric)
        told: dict[str, Any] = {
            "name": f"{number}: {min(sizes.get(m, 0) for m in members)} to "
            f"{max(sizes.get(m, 0) for m in members)} lists",
            "categories": members,
            "training_lists": sum(sizes.get(m, 0) for m in members),
            "judged": judged,
            "gains": {},
        }
        for model in results if judged else ():
            if model != baseline:
                gap = compare_runs(kept[model], kept[baseline], metric)
                told["gains"][model] = {
                    "difference": gap.difference,
                    "low": gap.low,
                    "high": gap.high,
                }
        found.append(told)
    return found


def _buckets(
    categories: Any, sizes: Mapping[str, int], cut: int | Sequence[int]
) -> list[list[str]]:
    """Categories by size in runs of nearly equal numbers, or between edges; none is empty."""
    import numpy as np

    names = sorted({str(name) for name in categories}, key=lambda name: (sizes.get(name, 0), name))
    if isinstance(cut, int):
        parts = np.array_split(np.array(names, object), max(1, min(cut, len(names))))
    else:
        edges = np.searchsorted([sizes.get(name, 0) for name in names], sorted(cut))
        parts = np.split(np.array(names, object), edges)
    return [[str(name) for name in part] for part in parts if len(part)]


def _only(result: PerListResult, members: Sequence[str]) -> PerListResult:
    """The lists of some categories."""
    import numpy as np

    assert result.categories is not None
    return result.taken(np.isin(result.categories.astype(str), list(members)))


def _judged(result: PerListResult, metric: str) -> int:
    values = result.metric(metric)
    return int((values == values).sum())


def run(settings: GainSettings, place: Place) -> Sequence[RenderableType]:
    """Trains what is missing (see `runs_of`), writes `results.json` and the figure."""
    from tfr_moe.analysis.sizes import training_sizes
    from tfr_moe.data import DataFolder

    assert place.data is not None
    need_hierarchy(place.data)
    table = read_table(Path(settings.configs) / settings.table)
    rows = wanted_rows(table.rows, settings.rows)
    judged = judged_data(settings, place.data)
    cells = cells_of(rows, settings.table, place.data, judged)
    runs = fair_runs(settings, cells, table.metrics, place)
    results = _by_level(results_of(runs, COLUMN), DataFolder(judged), settings)
    sizes = training_sizes(DataFolder(place.data))[settings.level]
    found = gains(results, sizes, settings.edges or settings.buckets)
    write_json(place.out / "results.json", {"metric": METRIC, "buckets": found})
    _draw(place.out, found, settings.level)
    return [_shown(found, settings)]


def _by_level(
    results: Mapping[str, Sequence[PerListResult]], judged: DataFolder, settings: GainSettings
) -> Mapping[str, Sequence[PerListResult]]:
    """The results with the categories of the level; those of runs are top categories."""
    from tfr_moe.analysis.sizes import categories_of

    if settings.level == "top":
        return results
    found = categories_of(judged, settings.split)
    assert found is not None  # there is a hierarchy
    return {
        model: [dataclasses.replace(result, categories=found.sub) for result in runs]
        for model, runs in results.items()
    }


def _draw(out: Path, found: Sequence[Mapping[str, Any]], level: str) -> None:
    """Bars of training lists, and a line of gains in points for each model."""
    models = list(dict.fromkeys(model for bucket in found for model in bucket["gains"]))
    places = range(len(found))
    with drawn(out, "figure_4_gain_by_size", width=6.5, height=4) as (axes,):
        bars = axes.twinx()
        # A twin stands before its axes: the lines would be behind the bars.
        axes.set_zorder(bars.get_zorder() + 1)
        axes.patch.set_visible(False)
        bars.bar(places, [b["training_lists"] for b in found], color="#D0D7DE", width=0.6)
        bars.set_ylabel("training lists")
        bars.grid(False)
        for index, model in enumerate(models):
            here = [(i, b["gains"][model]) for i, b in enumerate(found) if model in b["gains"]]
            axes.errorbar(
                [i + 0.06 * (index - len(models) / 2) for i, _ in here],
                [100 * gain["difference"] for _, gain in here],
                yerr=[
                    [100 * (gain["difference"] - gain["low"]) for _, gain in here],
                    [100 * (gain["high"] - gain["difference"]) for _, gain in here],
                ],
                color=COLOURS[index % len(COLOURS)],
                marker=MARKS[index % len(MARKS)],
                capsize=2,
                label=model,
            )
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set_xticks(list(places), [b["name"] for b in found], rotation=15)
        axes.set_xlabel(f"{NAMES[level]} by number of training lists")
        axes.set_ylabel(f"AUC minus {BASELINE}, points")
        axes.legend(fontsize=8)


def _shown(found: Sequence[Mapping[str, Any]], settings: GainSettings) -> Table:
    """A line for each bucket and model: a column for each model would be too wide for a terminal."""
    table = Table(
        title=f"{NAME}: {METRIC} minus {BASELINE} [95 % over {settings.runs} seeds and lists] by size "
        f"of {NAMES[settings.level]}; in the paper all gains are above 0 and fall with size",
        title_justify="left",
    )
    table.add_column("training lists", no_wrap=True)
    table.add_column("categories", justify="right")
    table.add_column("judged", justify="right")
    table.add_column("model")
    table.add_column("gain", justify="right", no_wrap=True)
    for bucket in found:
        cells = [bucket["name"], str(len(bucket["categories"])), f"{bucket['judged']:,}"]
        for model, gain in bucket["gains"].items():
            table.add_row(*cells, model, _gain(gain))
            cells = ["", "", ""]
        table.add_section()
    return table


def _gain(gain: Mapping[str, float]) -> str:
    return f"{gain['difference']:+.4f} [{gain['low']:+.4f}, {gain['high']:+.4f}]"


STUDY = Study(GainSettings, run, needs_data=True)
