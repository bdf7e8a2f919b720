"""What tells the chosen item apart in each category, and how few brands have most of the purchases.

The two views of a data set by which the paper on adversarial mixtures of experts with category
hierarchies motivates experts for categories: feature importance (its eq. 16 and Fig. 7) and brand
concentration (Fig. 8). Nothing is trained: both are counted over the lists of a data set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from numpy.typing import NDArray

from tfr_moe.encoding import decode_list
from tfr_moe.errors import UserError
from tfr_moe.folders import complete_folder, read_json, write_json
from tfr_moe.schema import MANIFEST_FILE, SCHEMA_FILE, SPLITS, FeatureSchema

from .lists import read_records
from .running import running

RESULT_FILE = "categories.json"
_SHARE = 0.8
Category = tuple[str, str]
"""(`top` or `sub`, the category's name; the pair `top > sub` for the latter)."""


class Seen(NamedTuple):
    """What was counted of one category.

    Attributes:
        lists: number of lists in which there was something to tell apart.
        sums: [m] sum over these lists of the share of pairs that each numeric feature has right.
        brands: brand -> number of positive items.
    """

    lists: int
    sums: NDArray[np.float64]
    brands: Counter[str]


def pairs_right(features: NDArray[np.float64], labels: NDArray[np.float64]) -> Any:
    """For each feature the share of (positive, negative) pairs in which the positive's is greater:

        #{(a, b): f_a > f_b, y_a > 0, y_b = 0} / #{(a, b): y_a > 0, y_b = 0}

    the inner term of eq. 16. Equal values count as not greater, as the equation has it.

    Args:
        features: [items, m] float64.
        labels: [items].

    Returns:
        [m] float64, or None for a list without such a pair.

    Example:
        >>> pairs_right(np.array([[3.0, 1.0], [2.0, 1.0], [5.0, 0.0]]), np.array([1.0, 0.0, 0.0]))
        array([0.5, 0.5])
    """
    chosen, others = features[labels > 0], features[labels <= 0]
    if not len(chosen) or not len(others):
        return None
    return (chosen[:, None, :] > others[None, :, :]).mean(axis=(0, 1))


def concentration(brands: Counter[str], share: float = _SHARE) -> dict[str, float]:
    """How many brands, the largest first, have the share of the purchases.

    Returns:
        `brands`: that number; `of`: number of all brands; `proportion`: the one by the other.

    Example:
        >>> concentration(Counter(a=7, b=1, c=1, d=1))
        {'brands': 2, 'of': 4, 'proportion': 0.5}
    """
    counts = np.cumsum(sorted(brands.values(), reverse=True))
    needed = int(np.searchsorted(counts, share * counts[-1], "left")) + 1
    return {"brands": needed, "of": len(brands), "proportion": needed / len(brands)}


class _Merge(beam.CombineFn):
    """`Seen` of several files -> one."""

    def __init__(self, width: int):
        self._width = width

    def create_accumulator(self) -> Seen:
        return Seen(0, np.zeros(self._width), Counter())

    def add_input(self, seen: Seen, other: Seen) -> Seen:
        return self.merge_accumulators([seen, other])

    def merge_accumulators(self, accumulators: Iterable[Seen]) -> Seen:
        lists, sums, brands = self.create_accumulator()
        for other in accumulators:
            lists, sums = lists + other.lists, sums + other.sums
            brands.update(other.brands)
        return Seen(lists, sums, brands)

    def extract_output(self, seen: Seen) -> Seen:
        return seen


def _numerics(schema: FeatureSchema) -> list[str]:
    return [feature.name for feature in schema.select("example", "numeric") if feature.width == 1]


def count_file(
    path: str, schema: FeatureSchema, brand: str | None
) -> Iterator[tuple[Category, Seen]]:
    """(category, `Seen`) of the lists of one TFRecord file.

    Args:
        path: the file.
        schema: of the data set, with a hierarchy.
        brand: an item's id feature, None for no brands.
    """
    from tensorflow_serving.apis import input_pb2

    names, found = _numerics(schema), dict[Category, list[Any]]()
    for _, record in read_records(path, 0, lambda amount: None):
        context, items = decode_list(schema, record)
        message = input_pb2.ExampleListWithContext.FromString(record)
        labels = np.array(
            [e.features.feature[schema.label].float_list.value[0] for e in message.examples]
        )
        matrix = np.array([[item[name] for name in names] for item in items]).reshape(
            -1, len(names)
        )
        shares = pairs_right(matrix, labels)
        bought = [
            str(item[brand])
            for item, label in zip(items, labels, strict=True)
            if brand and label > 0
        ]
        for category in _categories(schema, context):
            entry = found.setdefault(category, [0, np.zeros(len(names)), Counter()])
            if shares is not None:
                entry[0] += 1
                entry[1] += shares
            entry[2].update(name for name in bought if name)
    for category, (lists, sums, brands) in found.items():
        yield category, Seen(lists, sums, brands)


def _categories(schema: FeatureSchema, context: dict[str, Any]) -> list[Category]:
    assert schema.hierarchy is not None
    child = schema.feature(schema.hierarchy.child)
    return [("top", context[schema.hierarchy.parent]), ("sub", schema.lookup_key(child, context))]


def analyse(
    data: str | Path,
    out: str | Path,
    brand: str | None = None,
    split: str = SPLITS[0],
    overwrite: bool = False,
    beam_args: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Counts both views over a data set and writes them as JSON and, with matplotlib, as pictures.

    The importance of a feature f in a category is the mean of `pairs_right` over its lists:

        FI(f) = 1/N sum over lists #{f_a > f_b, y_a > 0, y_b = 0} / #{y_a > 0, y_b = 0}     (eq. 16)

    Where values are seldom equal, 0.5 tells nothing, 1 everything, 0 everything the other way round.

    Args:
        data: folder of a data set whose schema has a hierarchy.
        out: folder to make.
        brand: an item's id feature; None leaves out the brands.
        split: the lists that are counted.
        overwrite: replace `out` if it exists.
        beam_args: as for `build`.

    Returns:
        `feature_importance` and `brand_concentration`, each level -> category -> values, categories
        with most lists first.

    Raises:
        UserError: if the folder is no data set, has no hierarchy, or no such feature.
    """
    schema, files = _opened(Path(data), brand, split)
    names = _numerics(schema)
    with complete_folder(out, overwrite) as folder:
        with running(beam_args) as pipeline:
            _ = (
                pipeline
                | beam.Create(files)
                | beam.Reshuffle()
                | "Count" >> beam.FlatMap(partial(count_file, schema=schema, brand=brand))
                | "Merge" >> beam.CombinePerKey(_Merge(len(names)))
                | "All" >> beam.combiners.ToList()
                | "Write" >> beam.Map(partial(_write, path=str(folder / RESULT_FILE), names=names))
            )
        result: dict[str, Any] = read_json(folder / RESULT_FILE)
        _draw(result, folder)
    return result


def _opened(data: Path, brand: str | None, split: str) -> tuple[FeatureSchema, list[str]]:
    manifest = read_json(data / MANIFEST_FILE)
    if manifest is None:
        raise UserError(f"--data {data}: not a data set, it has no {MANIFEST_FILE}")
    if split not in SPLITS:
        raise UserError(f"--split must be one of {', '.join(SPLITS)}, got {split!r}")
    schema = FeatureSchema.load(data / SCHEMA_FILE)
    if schema.hierarchy is None:
        raise UserError(f"--data {data}: its schema names no hierarchy, so there are no categories")
    ids = [feature.name for feature in schema.select("example", "categorical")]
    if brand is not None and brand not in ids:
        raise UserError(
            f"--brand {brand}: no id of the items; there are: {', '.join(ids) or 'none'}"
        )
    return schema, [str(data / name) for name in manifest["splits"][split]["files"]]


def _write(found: list[tuple[Category, Seen]], path: str, names: list[str]) -> None:
    importance: dict[str, Any] = {"top": {}, "sub": {}}
    brands: dict[str, Any] = {"top": {}, "sub": {}}
    for (level, name), seen in sorted(found, key=lambda entry: (-entry[1].lists, entry[0])):
        if seen.lists:
            shares = {
                n: round(float(s), 6) for n, s in zip(names, seen.sums / seen.lists, strict=True)
            }
            importance[level][name] = {"lists": seen.lists, **shares}
        if seen.brands:
            brands[level][name] = concentration(seen.brands)
    write_json(Path(path), {"feature_importance": importance, "brand_concentration": brands})


def _draw(result: dict[str, Any], folder: Path) -> None:
    from .drawing import draw_concentration, draw_importance

    for level in ("top", "sub"):
        draw_importance(result["feature_importance"][level], folder / f"importance_{level}.png")
        draw_concentration(result["brand_concentration"][level], folder / f"brands_{level}.png")
