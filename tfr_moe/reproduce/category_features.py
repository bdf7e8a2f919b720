"""Figs. 7 and 8 of Adv & HSC-MoE: which features matter in each category, and how few brands sell.

Nothing is trained: both are counted by `tfr_moe.beam.categories`. The paper says that they differ much
between top categories and little between the sub-categories of one; the spread within and between says
whether they do here.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np
from pydantic import Field
from rich.console import RenderableType
from rich.table import Table

from tfr_moe.errors import UserError
from tfr_moe.folders import read_json, write_json
from tfr_moe.reproduce.mixture_tables import need_hierarchy
from tfr_moe.reproduce.settings import StudySettings
from tfr_moe.reproduce.study import Place, Study
from tfr_moe.schema import PAIR_SEPARATOR

FIGURES = {"adv-hsc-moe-fig7": "feature_importance", "adv-hsc-moe-fig8": "brand_concentration"}
COUNTED = "categories"
_SIZES = {"lists": "lists", "of": "brands"}


class FeatureSettings(StudySettings):
    """The settings of Figs. 7 and 8.

    Attributes:
        brand: the items' brand feature, for Fig. 8.
        split: the lists that are counted.
        least: categories with fewer lists (Fig. 8: with fewer brands) don't count for the spread.
    """

    brand: str | None = None
    split: str = "train"
    least: int = Field(20, ge=1)


def spreads(
    levels: Mapping[str, Mapping[str, Mapping[str, float]]], size: str, least: int
) -> dict[str, dict[str, float]]:
    """Per measure its standard deviation between top categories, and between siblings within one.

    Args:
        levels: `top` and `sub`: category -> measure -> value; sub-categories as `top > sub`.
        size: the measure that says how much stands behind a category.
        least: what it must be at least.

    Returns:
        measure -> `between`: standard deviation over top categories; `within`: that over the
        sub-categories of a top category, pooled over the top categories that have two or more; NaN
        where there is nothing to see.

    Example:
        >>> top = {"a": {"lists": 9, "f": 0.5}, "b": {"lists": 9, "f": 0.7}}
        >>> sub = {"a > x": {"lists": 9, "f": 0.5}, "a > y": {"lists": 9, "f": 0.6}}
        >>> found = spreads({"top": top, "sub": sub}, "lists", 1)["f"]
        >>> round(found["between"], 4), round(found["within"], 4)
        (0.1414, 0.0707)
    """
    kept = {
        level: {name: row for name, row in rows.items() if row.get(size, 0) >= least}
        for level, rows in levels.items()
    }
    measures = [m for m in next(iter(kept["top"].values()), {}) if m != size]
    families: dict[str, list[Mapping[str, float]]] = {}
    for name, row in kept["sub"].items():
        families.setdefault(name.partition(PAIR_SEPARATOR)[0], []).append(row)
    found = {}
    for measure in measures:
        tops = [row[measure] for row in kept["top"].values()]
        groups = [[row[measure] for row in rows] for rows in families.values() if len(rows) > 1]
        found[measure] = {
            "between": float(np.std(tops, ddof=1)) if len(tops) > 1 else float("nan"),
            "within": _pooled(groups),
        }
    return found


def _pooled(groups: Sequence[Sequence[float]]) -> float:
    freedom = sum(len(group) - 1 for group in groups)
    if not freedom:
        return float("nan")
    return float(np.sqrt(sum(np.var(group) * len(group) for group in groups) / freedom))


def run(name: str, settings: FeatureSettings, place: Place) -> Sequence[RenderableType]:
    """Counts, unless that is done; the pictures stand in `OUT/categories`."""
    from tfr_moe.beam.categories import RESULT_FILE, analyse

    assert place.data is not None
    need_hierarchy(place.data)
    figure = FIGURES[name]
    if figure == "brand_concentration" and settings.brand is None:
        raise UserError("brand: Fig. 8 needs it, the items' brand feature: --set brand=NAME")
    result = read_json(place.out / COUNTED / RESULT_FILE)
    if result is None:
        with place.console.status("counting"):
            result = analyse(place.data, place.out / COUNTED, settings.brand, settings.split)
    levels = result[figure]
    if not levels["top"]:
        raise UserError(f"--data {place.data}: has nothing to count for {name} in {settings.split}")
    size = "lists" if figure == "feature_importance" else "of"
    spread = spreads(levels, size, settings.least)
    write_json(place.out / "results.json", {"levels": levels, "spread": spread})
    return [_values(name, levels["top"]), _spread(spread, size, settings.least)]


def _values(name: str, top: Mapping[str, Mapping[str, float]], most: int = 15) -> Table:
    table = Table(title=f"{name}: by top category, most lists first", title_justify="left")
    table.add_column("top category")
    measures = list(next(iter(top.values())))
    for measure in measures:
        table.add_column(measure, justify="right")
    for category, row in list(top.items())[:most]:
        table.add_row(category, *(f"{row[measure]:.4g}" for measure in measures))
    return table


def _spread(spread: Mapping[str, Mapping[str, float]], size: str, least: int) -> Table:
    table = Table(
        title="standard deviation between top categories and among siblings "
        f"(at least {least} {_SIZES[size]}); the paper finds the second much smaller",
        title_justify="left",
    )
    for heading in ("measure", "between", "within", "within / between"):
        table.add_column(heading, justify="left" if heading == "measure" else "right")
    for measure, row in spread.items():
        ratio = row["within"] / row["between"] if row["between"] else float("nan")
        table.add_row(measure, f"{row['between']:.4f}", f"{row['within']:.4f}", f"{ratio:.2f}")
    return table


STUDIES = {
    name: Study(FeatureSettings, functools.partial(run, name), needs_data=True) for name in FIGURES
}
