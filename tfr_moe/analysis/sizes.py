"""Categories and their sizes: what a split holds of each, and the gain by size (Fig. 4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tfr_moe._compat import tf, tfr
from tfr_moe.analysis.groups import Array
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.evaluation.categories import bucketed
from tfr_moe.evaluation.result import PerListResult, Policy, summarize
from tfr_moe.evaluation.score import strings
from tfr_moe.evaluation.significance import alignment, compare
from tfr_moe.schema import PAIR_SEPARATOR

LEVELS = ("top", "sub")


class Categories(NamedTuple):
    """The categories of lists: [n] names of the top ones, and of the sub-categories as `top > sub`."""

    top: Array
    sub: Array


def read_categories(folder: DataFolder, split: str, batch_size: int = 4096) -> Iterator[Categories]:
    """The categories of a split's lists, batch by batch in the order of the files.

    Only these two columns are parsed. Yields nothing where the schema has no hierarchy.
    """
    tree = folder.schema.hierarchy
    if tree is None:
        return
    spec = folder.schema.feature_spec("context")
    wanted = {name: spec[name] for name in (tree.parent, tree.child)}
    labels = folder.schema.label_spec()

    def parse(records: tf.Tensor) -> dict[str, tf.Tensor]:
        # The parser wants some column of the items, and gets one of one item a list.
        return tfr.data.parse_from_example_list(
            records, list_size=1, context_feature_spec=wanted, example_feature_spec=labels
        )

    for found in ElwcDatasetBuilder(folder).serialized_lists(split).batch(batch_size).map(parse):
        top, child = strings(found[tree.parent]), strings(found[tree.child])
        yield Categories(top, top + PAIR_SEPARATOR + child)


def training_sizes(folder: DataFolder) -> dict[str, dict[str, int]]:
    """Per level (`top`, `sub`) and category the number of training lists."""
    counts: dict[str, Counter[str]] = {level: Counter() for level in LEVELS}
    for found in read_categories(folder, "train"):
        for level in LEVELS:
            counts[level].update(getattr(found, level).tolist())
    return {level: dict(count) for level, count in counts.items()}


def categories_of(folder: DataFolder, split: str) -> Categories | None:
    """The categories of all lists of a split; None where the schema has no hierarchy."""
    parts = list(read_categories(folder, split))
    if not parts:
        return None
    top, sub = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Categories(top, sub)


@dataclass(frozen=True)
class SizeBucket:
    """A model in a bucket of categories of similar training size.

    Attributes:
        name: number and range of sizes, smallest first: `1: 20 to 340`.
        categories: number of categories.
        judged: number of lists that the metric can judge.
        mean: of the model.
        difference: from the baseline; None for the baseline itself or without one.
        low: lower end of the 95 % interval: of the difference over lists (bootstrap), or, where there is
            none, of the mean (t).
        high: upper end.
    """

    name: str
    categories: int
    judged: int
    mean: float
    difference: float | None
    low: float
    high: float


def gain_by_size(
    results: Mapping[str, PerListResult],
    metric: str,
    sizes: Mapping[str, int],
    baseline: str | None = None,
    num_buckets: int = 5,
    policy: Policy = "skip",
) -> dict[str, list[SizeBucket]]:
    """Each model by buckets of categories of similar training size, as Fig. 4 of Adv & HSC-MoE.

    Args:
        results: per model its result, all of the same lists and with categories.
        metric: a metric computed in all of them.
        sizes: per category its number of training lists.
        baseline: the model that the others are compared with.
        num_buckets: fewer where there are fewer categories.
        policy: what lists with nothing relevant count.

    Raises:
        UserError: where results are not of the same lists or have no categories.
    """
    first = next(iter(results.values()))
    names = np.unique(np.asarray(first.categories, dtype=str))
    cut = bucketed(first, sizes, max(1, min(num_buckets, len(names))))
    buckets = np.asarray(cut.categories, dtype=str)
    labels = sorted(set(buckets), key=lambda name: int(name.partition(":")[0]))
    counts = {
        label: len(np.unique(np.asarray(first.categories, dtype=str)[buckets == label]))
        for label in labels
    }
    aligned = {m: result.taken(alignment(first, result)) for m, result in results.items()}
    found: dict[str, list[SizeBucket]] = {}
    for model in results:
        rows = []
        for label in labels:
            kept = buckets == label
            mine = aligned[model].taken(kept)
            summary = summarize(mine, policy)[metric]
            low, high, difference = summary.low, summary.high, None
            if baseline is not None and model != baseline:
                against = compare(mine, aligned[baseline].taken(kept), metric, policy)
                low, high, difference = against.low, against.high, against.difference
            rows.append(
                SizeBucket(
                    label, counts[label], summary.judged, summary.mean, difference, low, high
                )
            )
        found[model] = rows
    return found
