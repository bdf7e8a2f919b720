"""Computes feature importance and brand concentration by category (Figs. 7 and 8 of the paper).

    python -m experiments.adv_hsc_moe.category_statistics --data DATA --out FOLDER [--brand brand]

The paper motivates experts for categories by these two statistics of a data set. Both are counted
over its lists; nothing is trained. The folder gets `categories.json`, `categories.html` and the
maps of the page as SVG files.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfr_moe.elwc import decode_list
from tfr_moe.errors import UserError, error_line
from tfr_moe.report import Cell, HeatMap, Section, label, percent, render_sections, write_page
from tfr_moe.schema import MANIFEST_FILE, SCHEMA_FILE, SPLITS, FeatureSchema
from tfr_moe.utils import atomic_directory, read_json, write_json

RESULT_FILE = "categories.json"
PAGE_FILE = "categories.html"
_SHARE = 0.8
_MOST = 12
Category = tuple[str, str]
"""(`top` or `sub`, name of the category; the pair `top > sub` for the latter)"""


class CategoryCounts(NamedTuple):
    """Counts of one category.

    Attributes:
        lists: number of lists with at least one (positive, negative) pair.
        sums: [m] sum of `correct_pairs` over these lists.
        brands: brand -> number of positive items.
    """

    lists: int
    sums: NDArray[np.float64]
    brands: Counter[str]


def correct_pairs(features: NDArray[np.float64], labels: NDArray[np.float64]) -> Any:
    """Returns, for each feature, the fraction of pairs in which the positive has the greater value:

        #{(a, b): f_a > f_b, y_a > 0, y_b = 0} / #{(a, b): y_a > 0, y_b = 0}

    the inner term of eq. 16. As in the equation, equal values do not count as greater.

    Args:
        features: [items, m] float64.
        labels: [items].

    Returns:
        [m] float64, or None for a list without such a pair.

    Example:
        >>> correct_pairs(np.array([[3.0, 1.0], [2.0, 1.0], [5.0, 0.0]]), np.array([1.0, 0.0, 0.0]))
        array([0.5, 0.5])
    """
    positives, negatives = features[labels > 0], features[labels <= 0]
    if not len(positives) or not len(negatives):
        return None
    return (positives[:, None, :] > negatives[None, :, :]).mean(axis=(0, 1))


def concentration(brands: Counter[str], share: float = _SHARE) -> dict[str, float]:
    """Returns how many brands, largest first, account for the share of the purchases.

    Returns:
        `brands`: that number; `of`: number of all brands; `proportion`: their ratio.

    Example:
        >>> concentration(Counter(a=7, b=1, c=1, d=1))
        {'brands': 2, 'of': 4, 'proportion': 0.5}
    """
    counts = np.cumsum(sorted(brands.values(), reverse=True))
    needed = int(np.searchsorted(counts, share * counts[-1], "left")) + 1
    return {"brands": needed, "of": len(brands), "proportion": needed / len(brands)}


def analyse(
    data: str | Path,
    out: str | Path,
    brand: str | None = None,
    split: str = SPLITS[0],
    overwrite: bool = False,
) -> dict[str, Any]:
    """Computes both statistics of a data set and writes them as JSON, page and pictures.

    The importance of a feature f in a category is the mean of `correct_pairs` over its lists:

        FI(f) = 1/N sum over lists #{f_a > f_b, y_a > 0, y_b = 0} / #{y_a > 0, y_b = 0}     (eq. 16)

    For features that are rarely equal, 0.5 means no information.

    Args:
        data: data-set folder whose schema has a hierarchy.
        out: folder to create.
        brand: ID feature of the items; None skips brands.
        split: split to count.
        overwrite: replace `out` if it exists.

    Returns:
        `feature_importance` and `brand_concentration`, each level -> category -> values, categories
        with most lists first.

    Raises:
        UserError: if the folder is no data set, has no hierarchy, or no such feature.
    """
    schema, files = _open(Path(data), brand, split)
    names = _numerics(schema)
    counts: dict[Category, CategoryCounts] = {}
    for path in files:
        for category, correct, purchases in _lists(path, schema, brand):
            of_category = counts.get(category, CategoryCounts(0, np.zeros(len(names)), Counter()))
            of_category.brands.update(purchases)
            if correct is not None:
                of_category = of_category._replace(
                    lists=of_category.lists + 1, sums=of_category.sums + correct
                )
            counts[category] = of_category
    with atomic_directory(out, RESULT_FILE if overwrite else None) as folder:
        result = _result(counts, names)
        write_json(folder / RESULT_FILE, result)
        sections = _sections(result)
        page = render_sections(
            "Do categories differ in what is bought?",
            f"{split} lists of {data}, the {_MOST} categories with most lists",
            f"{len(counts)} categories with evaluated lists" if sections else "Nothing is bought",
            [section.finding for section in sections],
            sections,
            svg=folder,
        )
        write_page(page, folder / PAGE_FILE)
    return result


def _open(data: Path, brand: str | None, split: str) -> tuple[FeatureSchema, list[Path]]:
    manifest = read_json(data / MANIFEST_FILE)
    if manifest is None:
        raise UserError(f"data {data}: not a data set, it has no {MANIFEST_FILE}")
    if split not in SPLITS:
        raise UserError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
    schema = FeatureSchema.load(data / SCHEMA_FILE)
    if schema.hierarchy is None:
        raise UserError(f"data {data}: its schema has no hierarchy, hence no categories")
    ids = [feature.name for feature in schema.select("example", "categorical")]
    if brand is not None and brand not in ids:
        raise UserError(
            f"brand {brand!r}: not an ID of the items; available: {', '.join(ids) or 'none'}"
        )
    return schema, [data / name for name in manifest["splits"][split]["files"]]


def _numerics(schema: FeatureSchema) -> list[str]:
    return [feature.name for feature in schema.select("example", "numeric") if feature.width == 1]


def _lists(
    path: Path, schema: FeatureSchema, brand: str | None
) -> Iterator[tuple[Category, Any, list[str]]]:
    """Yields (category, `correct_pairs`, purchased brands) of each list and level of a file."""
    from tensorflow_serving.apis import input_pb2

    assert schema.hierarchy is not None
    names, child = _numerics(schema), schema.feature(schema.hierarchy.child)
    for record in tf.data.TFRecordDataset(str(path), "GZIP").as_numpy_iterator():
        context, items = decode_list(schema, record)
        message = input_pb2.ExampleListWithContext.FromString(record)
        labels = np.array(
            [e.features.feature[schema.label].float_list.value[0] for e in message.examples]
        )
        matrix = np.array([[item[name] for name in names] for item in items])
        correct = correct_pairs(matrix.reshape(-1, len(names)), labels)
        positives = [item for item, label in zip(items, labels, strict=True) if label > 0]
        purchases = [str(item[brand]) for item in positives if brand and item[brand]]
        yield ("top", context[schema.hierarchy.parent]), correct, purchases
        yield ("sub", schema.lookup_key(child, context)), correct, purchases


def _result(counts: dict[Category, CategoryCounts], names: list[str]) -> dict[str, Any]:
    importance: dict[str, Any] = {"top": {}, "sub": {}}
    brands: dict[str, Any] = {"top": {}, "sub": {}}
    for (level, name), of_category in sorted(counts.items(), key=lambda c: (-c[1].lists, c[0])):
        if of_category.lists:
            means = zip(names, of_category.sums / of_category.lists, strict=True)
            shares = {feature: round(float(mean), 6) for feature, mean in means}
            importance[level][name] = {"lists": of_category.lists, **shares}
        if of_category.brands:
            brands[level][name] = concentration(of_category.brands)
    return {"feature_importance": importance, "brand_concentration": brands}


def _sections(result: dict[str, Any]) -> list[Section]:
    """A map of features and one of brands for each level, of the categories with most lists."""
    sections = []
    for level, name in (("top", "Top categories"), ("sub", "Sub-categories")):
        importance, brands = (
            dict(list(result[kind][level].items())[:_MOST])
            for kind in ("feature_importance", "brand_concentration")
        )
        maps, findings = [], []
        if importance:
            maps.append(_importance(importance))
            findings.append(_most_varied(importance))
        if brands:
            maps.append(_brands(brands))
            shares = sorted((of_brands["proportion"], of) for of, of_brands in brands.items())
            (low, least), (high, most) = shares[0], shares[-1]
            findings.append(
                f"{percent(_SHARE)} of the purchases are of {percent(low)} of the brands in "
                f"{least} and of {percent(high)} in {most}."
            )
        if maps:
            sections.append(Section(name, " ".join(findings), maps))
    return sections


def _features(importance: dict[str, dict[str, float]]) -> list[str]:
    return [name for name in next(iter(importance.values())) if name != "lists"]


def _most_varied(importance: dict[str, dict[str, float]]) -> str:
    def ends(feature: str) -> tuple[float, float]:
        values = [shares[feature] for shares in importance.values()]
        return min(values), max(values)

    feature = max(_features(importance), key=lambda name: ends(name)[1] - ends(name)[0])
    low, high = ends(feature)
    return f"{feature} differs most: it orders {percent(low)} to {percent(high)} of the pairs."


def _importance(importance: dict[str, dict[str, float]]) -> HeatMap:
    features = _features(importance)
    cells = [
        [Cell(f"{of[name]:.2f}", 2 * (of[name] - 0.5)) for name in features]
        for of in importance.values()
    ]
    caption = "Share of pairs that a feature orders correctly; 0.5 is no information"
    columns = [(label(name), "") for name in features]
    return HeatMap(caption, columns, list(map(label, importance)), cells, "category ↓ feature →")


def _brands(brands: dict[str, dict[str, float]]) -> HeatMap:
    cells = [
        [
            Cell(f"{of_category['brands']:,.0f}"),
            Cell(f"{of_category['of']:,.0f}"),
            Cell(percent(of_category["proportion"]), of_category["proportion"]),
        ]
        for of_category in brands.values()
    ]
    caption = f"Brands with {percent(_SHARE)} of the purchases"
    columns = [("brands", ""), ("of", ""), ("proportion", "")]
    return HeatMap(caption, columns, list(map(label, brands)), cells, "category")


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="data-set folder")
    parser.add_argument("--out", type=Path, required=True, help="folder to create")
    parser.add_argument("--brand", help="brand feature of the items, for Fig. 8")
    parser.add_argument("--split", default=SPLITS[0], help="split to count (default: train)")
    parser.add_argument("--overwrite", action="store_true", help="replace --out")
    options = parser.parse_args(arguments)
    try:
        result = analyse(**vars(options))
    except UserError as error:
        print(error_line(error), file=sys.stderr)
        return 2
    levels = result["feature_importance"]
    print(f"wrote {options.out}: {len(levels['top'])} top, {len(levels['sub'])} sub-categories")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
