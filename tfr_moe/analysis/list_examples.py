"""Example lists: those that a model ranks worst and best, and where models differ most."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.evaluation.results import PerListResult
from tfr_moe.metrics.per_list import Array, Floats
from tfr_moe.schema import MASK, FeatureSchema, Scope

MOST_LISTS = 4
"""Number of worst, best, lost and gained lists."""
MOST_ITEMS = 12


@dataclass(frozen=True)
class ShownItem:
    """An item with its rank by a model, from 1, and its columns by name as logged.

    `position` is the displayed one; None if the schema has none.
    """

    rank: int
    score: float
    label: float
    position: int | None
    features: dict[str, str | float]


@dataclass(frozen=True)
class ShownList:
    """A list with its items, best first; long lists are cut to the top and the relevant items.

    `values` has the metric on this list by model, NaN where it is not defined; `context` the
    columns of the list by name. `num_items` is the number of items before the cut.
    """

    list_id: str
    values: dict[str, float]
    context: dict[str, str | float]
    items: list[ShownItem]
    num_items: int


def example_lists(
    dataset: tf.data.Dataset,
    results: Mapping[str, PerListResult],
    metric: str,
    subject: str,
    baseline: str | None,
    score: Callable[..., Any],
    schema: FeatureSchema,
    label: str,
) -> dict[str, list[ShownList]]:
    """Lists of a data set by kind, as a model ranks them.

    The kinds are `worst` and `best` by a metric, and `lost` and `gained` furthest below and above
    the baseline.

    `results` are those of all models on the data set, in its order. `score` gives the scores of the
    `subject`, which is compared with the `baseline`; the only model has none. `label` is the one to
    show of several.
    """
    values = {model: result.metric(metric) for model, result in results.items()}
    sizes = results[subject].num_items
    worst, best = extremes(values[subject], sizes, MOST_LISTS)
    kinds: dict[str, list[int]] = {"worst": worst, "best": best, "lost": [], "gained": []}
    if baseline is not None:
        gaps = values[subject] - values[baseline]
        lost, gained = extremes(gaps, sizes, MOST_LISTS)
        kinds["lost"] = [i for i in lost if gaps[i] < 0]
        kinds["gained"] = [i for i in gained if gaps[i] > 0]
    displayed = {}
    for number, element in fetch(dataset, itertools.chain(*kinds.values())):
        of_list = {model: float(of[number]) for model, of in values.items()}
        displayed[number] = show_list(element, score, schema, label, of_list)
    return {kind: [displayed[number] for number in numbers] for kind, numbers in kinds.items()}


def extremes(values: Floats, sizes: Array, count: int) -> tuple[list[int], list[int]]:
    """Indices of the lists with the lowest and with the highest values; NaN values are skipped.

    Of lists with the same value, longer lists come first.
    """
    defined = np.flatnonzero(~np.isnan(values))
    rising = defined[np.lexsort((-sizes[defined], values[defined]))]
    falling = defined[np.lexsort((-sizes[defined], -values[defined]))]
    lowest = rising[:count].tolist()
    return lowest, [i for i in falling[:count].tolist() if i not in lowest]


def fetch(dataset: tf.data.Dataset, numbers: Iterable[int]) -> Iterator[tuple[int, Any]]:
    """Yields lists by their index, in the order of the data set, each as a batch of one."""
    wanted = sorted(set(numbers))
    start = 0
    for element in dataset:
        if not wanted:
            return
        size = int(tf.shape(element[0][MASK])[0])
        while wanted and wanted[0] < start + size:
            offset = wanted[0] - start
            yield (
                wanted.pop(0),
                tf.nest.map_structure(lambda part, at=offset: part[at : at + 1], element),
            )
        start += size


def _columns(features: Mapping[str, Array], schema: FeatureSchema, scope: Scope) -> dict[str, Any]:
    """Columns by name, [1] for the context, [L] for items: IDs, then numbers of width 1.

    Lists of IDs are joined to one text, and a missing number is an empty one.
    """
    columns: dict[str, Any] = {}
    for feature in sorted(schema.select(scope), key=lambda feature: feature.kind == "numeric"):
        tensor, part = schema.stored_at(feature.name)
        rows = np.atleast_2d(features[tensor][0])[:, part]
        if feature.kind != "numeric":
            texts = (b" ".join(filter(None, row)) for row in rows)
            columns[feature.name] = [text.decode("utf-8", "replace") for text in texts]
        elif feature.width == 1:
            numbers = rows[:, 0].astype(np.float64)
            columns[feature.name] = ["" if np.isnan(n) else round(float(n), 6) for n in numbers]
    return columns


def show_list(
    element: Any,
    score: Callable[..., Any],
    schema: FeatureSchema,
    label: str,
    values: Mapping[str, float],
    most_items: int = MOST_ITEMS,
) -> ShownList:
    """Scores a list `(features, labels, extras)` of `fetch` and makes it readable.

    `label` is the one to show of several, `values` has the metric on this list per model.
    """
    features, labels, extras = element
    scores = np.asarray(score(features))[0]
    raw = {name: part.numpy() for name, part in features.items()}
    shown_label = labels[label] if isinstance(labels, dict) else labels
    grades, mask = shown_label.numpy()[0], raw[MASK][0]
    items = _columns(raw, schema, "example")
    positions = None if schema.position is None else extras[schema.position].numpy().reshape(-1)
    real = np.flatnonzero(mask)
    order = real[np.argsort(-scores[real], kind="stable")]
    rows = [
        ShownItem(
            rank=rank,
            score=float(scores[at]),
            label=float(grades[at]),
            position=None if positions is None else int(positions[at]),
            features={name: column[at] for name, column in items.items()},
        )
        for rank, at in enumerate(order, start=1)
        if rank <= most_items or grades[at] > 0
    ]
    context = {name: column[0] for name, column in _columns(raw, schema, "context").items()}
    list_id = extras[schema.list_id].numpy().reshape(-1)[0].decode("utf-8", "replace")
    return ShownList(list_id, dict(values), context, rows, len(real))
