"""Figs. 7 and 8 of Adv & HSC-MoE: feature importance and brand concentration by category.

Nothing is trained: both are counted over the lists of a data set. The paper finds large differences
between top categories and small ones between the sub-categories of one; the standard deviations
between and within top categories measure that.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np
from pydantic import Field
from rich.console import RenderableType
from rich.table import Table

from experiments.adv_hsc_moe.category_statistics import RESULT_FILE, analyse
from experiments.adv_hsc_moe.model_tables import need_hierarchy
from experiments.common.settings import StudySettings
from experiments.common.study import Study, StudyContext
from tfr_moe.errors import UserError
from tfr_moe.schema import PAIR_SEPARATOR
from tfr_moe.utils import read_json, write_json

FIGURES = {"adv-hsc-moe-fig7": "feature_importance", "adv-hsc-moe-fig8": "brand_concentration"}
COUNTED = "categories"
_SIZES = {"lists": "lists", "of": "brands"}


class FeatureSettings(StudySettings):
    """Settings of Figs. 7 and 8.

    Attributes:
        brand: the items' brand feature, for Fig. 8.
        split: the split whose lists are counted.
        least: minimum number of lists (Fig. 8: of brands) of a category for the standard
            deviations.
    """

    brand: str | None = None
    split: str = "train"
    least: int = Field(20, ge=1)


def spreads(
    levels: Mapping[str, Mapping[str, Mapping[str, float]]], size: str, least: int
) -> dict[str, dict[str, float]]:
    """Returns per measure its standard deviation between and within top categories.

    Args:
        levels: `top` and `sub`: category -> measure -> value; sub-categories as `top > sub`.
        size: the measure that is a category's sample size.
        least: minimum size of a category.

    Returns:
        measure -> `between`: standard deviation over top categories; `within`: that over the
        sub-categories of a top category, pooled over the top categories that have two or more; NaN
        if undefined.

    Example:
        >>> top = {"a": {"lists": 9, "f": 0.5}, "b": {"lists": 9, "f": 0.7}}
        >>> sub = {"a > x": {"lists": 9, "f": 0.5}, "a > y": {"lists": 9, "f": 0.6}}
        >>> spread = spreads({"top": top, "sub": sub}, "lists", 1)["f"]
        >>> round(spread["between"], 4), round(spread["within"], 4)
        (0.1414, 0.0707)
    """
    large = {
        level: {name: row for name, row in rows.items() if row.get(size, 0) >= least}
        for level, rows in levels.items()
    }
    measures = [m for m in next(iter(large["top"].values()), {}) if m != size]
    families: dict[str, list[Mapping[str, float]]] = {}
    for name, row in large["sub"].items():
        families.setdefault(name.partition(PAIR_SEPARATOR)[0], []).append(row)
    spread = {}
    for measure in measures:
        tops = [row[measure] for row in large["top"].values()]
        groups = [[row[measure] for row in rows] for rows in families.values() if len(rows) > 1]
        spread[measure] = {
            "between": float(np.std(tops, ddof=1)) if len(tops) > 1 else float("nan"),
            "within": _pooled(groups),
        }
    return spread


def _pooled(groups: Sequence[Sequence[float]]) -> float:
    freedom = sum(len(group) - 1 for group in groups)
    if not freedom:
        return float("nan")
    return float(np.sqrt(sum(np.var(group) * len(group) for group in groups) / freedom))


def run(name: str, settings: FeatureSettings, context: StudyContext) -> Sequence[RenderableType]:
    """Counts, unless that is done; the plots are in `OUT/categories`."""
    data = context.need_data()
    need_hierarchy(data)
    figure = FIGURES[name]
    if figure == "brand_concentration" and settings.brand is None:
        raise UserError("brand: Fig. 8 needs the items' brand feature: --set brand=NAME")
    result = read_json(context.out / COUNTED / RESULT_FILE)
    if result is None:
        with context.console.status("counting"):
            result = analyse(data, context.out / COUNTED, settings.brand, settings.split)
    levels = result[figure]
    if not levels["top"]:
        raise UserError(f"--data {data}: has nothing to count for {name} in {settings.split}")
    size = "lists" if figure == "feature_importance" else "of"
    spread = spreads(levels, size, settings.least)
    write_json(context.out / "results.json", {"levels": levels, "spread": spread})
    return [_values(name, levels["top"]), _spread(spread, size, settings.least)]


def _values(name: str, top: Mapping[str, Mapping[str, float]], max_rows: int = 15) -> Table:
    table = Table(title=f"{name}: by top category, most lists first", title_justify="left")
    table.add_column("top category")
    measures = list(next(iter(top.values())))
    for measure in measures:
        table.add_column(measure, justify="right")
    for category, row in list(top.items())[:max_rows]:
        table.add_row(category, *(f"{row[measure]:.4g}" for measure in measures))
    return table


def _spread(spread: Mapping[str, Mapping[str, float]], size: str, least: int) -> Table:
    table = Table(
        title="standard deviation between top categories, and within them over sub-categories "
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
