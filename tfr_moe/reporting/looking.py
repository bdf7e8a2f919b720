"""What is seen by looking into one run: its attention, and single lists that it ranked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.analysis.attention_maps import POSITIONS, attended, encoder_of, gather_maps
from tfr_moe.analysis.groups import Grouping, Places, grouping_of
from tfr_moe.analysis.lists import ShownList, extremes, fetch, show_list
from tfr_moe.baselines import BaselineRun
from tfr_moe.comparison import scorer_of, tasks_of
from tfr_moe.evaluation.result import PerListResult
from tfr_moe.evaluation.score import compiled
from tfr_moe.evaluation.significance import alignment
from tfr_moe.reporting.content import Lists
from tfr_moe.schema import FeatureSchema
from tfr_moe.scorers.multitask import SCORES
from tfr_moe.training import LoadedRun

Opened: TypeAlias = "LoadedRun | BaselineRun"
PLACES = 20
_SAMPLE = 10  # batches that ids and bounds are taken from


@dataclass(frozen=True)
class Judged:
    """Runs and how they fared.

    Attributes:
        opened: per name the run.
        results: per name its result, all of the same lists.
        baseline: the name of the run that others are compared with; None for a single run.
        tasks: the labels that all were judged by, empty for the primary one.
        metric: the metric of categories and lists.
    """

    opened: Mapping[str, Opened]
    results: Mapping[str, PerListResult]
    baseline: str | None
    tasks: tuple[str, ...]
    metric: str

    @property
    def task(self) -> str:
        """The task that the metric is of; "" where there are none."""
        return next((task for task in self.tasks if self.metric.startswith(f"{task}_")), "")


def attention_maps(
    model: tf.keras.Model,
    dataset: tf.data.Dataset,
    schema: FeatureSchema,
    by: Sequence[str] = (),
) -> tuple[int, dict[str, Any]]:
    """Number of lists, and by grouping a map as `AttentionMap.as_json` has it; none without attention.

    Args:
        model: of a run.
        dataset: batches of whole lists.
        schema: of the data.
        by: features of the items; the place in the list comes by itself.

    Raises:
        UserError: for a feature that is no id or number of the items.
    """
    if encoder_of(model) is None:
        return 0, {}
    groupings: dict[str, Grouping] = {POSITIONS: Places(PLACES)}
    if by:
        sample = [
            {name: value.numpy() for name, value in features.items()}
            for features, *_ in islice(dataset, _SAMPLE)
        ]
        groupings |= {name: grouping_of(schema, name, sample) for name in by}
    lists, maps = gather_maps(attended(model, dataset), groupings)
    return lists, {name: gathered.as_json() for name, gathered in maps.items()}


def lists_of(judged: Judged, name: str, dataset: tf.data.Dataset, count: int) -> Lists:
    """The lists that a run ranks worst and best, and those where it differs most from the baseline.

    Args:
        judged: all runs.
        name: the run.
        dataset: of the lists in the order in which they were judged.
        count: so many of each kind.
    """
    mine = judged.results[name]
    values = mine.metric(judged.metric)
    worst, best = extremes(values, mine.num_items, count)
    lost: list[int] = []
    gained: list[int] = []
    if judged.baseline is not None and name != judged.baseline:
        base = judged.results[judged.baseline]
        gaps = values - base.metric(judged.metric)[alignment(mine, base)]
        lost, gained = extremes(gaps, mine.num_items, count)
        lost, gained = [i for i in lost if gaps[i] < 0], [i for i in gained if gaps[i] > 0]
    score = _scorer(judged, name, dataset.element_spec[0])
    schema = judged.opened[name].schema
    shown: dict[int, ShownList] = {
        number: show_list(element, score, schema, judged.task, _values(judged, mine, number))
        for number, element in fetch(dataset, [*worst, *best, *lost, *gained])
    }
    return Lists(
        judged.metric, *([shown[i] for i in numbers] for numbers in (worst, best, lost, gained))
    )


def _scorer(judged: Judged, name: str, features_spec: Any) -> Callable[[Any], Any]:
    run = judged.opened[name]
    infer = compiled(scorer_of(run), features_spec)
    output = f"{SCORES}_{judged.task}" if tasks_of(run) else None

    def score(features: Any) -> Any:
        found = infer(features)
        return found if output is None else found[output]

    return score


def _values(judged: Judged, mine: PerListResult, number: int) -> dict[str, float | None]:
    """The metric of every run on one list."""
    found: dict[str, float | None] = {}
    for name, result in judged.results.items():
        value = float(result.metric(judged.metric)[alignment(mine, result)[number]])
        found[name] = None if np.isnan(value) else value
    return found
