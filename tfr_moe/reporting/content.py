"""What a report holds, as plain data: the same for the page and for JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tfr_moe.analysis.calibration import CalibrationReport
from tfr_moe.analysis.curves import LearningCurves
from tfr_moe.analysis.gates import GateReport
from tfr_moe.analysis.lists import ShownList
from tfr_moe.analysis.sizes import SizeBucket
from tfr_moe.evaluation.categories import CategoryRow
from tfr_moe.evaluation.report import EvaluationReport
from tfr_moe.evaluation.significance import SeedInterval, TwoLevelInterval


@dataclass(frozen=True)
class DataPart:
    """The data set.

    Attributes:
        path: its folder.
        source: what it was built from; None where it was not built by `tfr-moe build`.
        splits: per split what the manifest counts: lists, items, positives.
        features: number of features by kind.
        labels: the labels, the primary one first.
        hierarchy: names of the top and the sub-category's columns; None without one.
        categories: number of top and of sub-categories in the training split.
        notes: what a reader of numbers on this data must know.
    """

    path: str
    source: str | None
    splits: dict[str, dict[str, int]]
    features: dict[str, int]
    labels: tuple[str, ...]
    hierarchy: tuple[str, str] | None
    categories: tuple[int, int]
    notes: dict[str, Any]


@dataclass(frozen=True)
class SeedsPart:
    """Runs that differ in nothing but their seed, taken together.

    Attributes:
        runs: their names.
        means: per metric the mean over runs with its t interval.
        differences: per metric the difference from the baseline's runs, over runs and lists (two-level
            bootstrap); empty for those themselves.
    """

    runs: list[str]
    means: dict[str, SeedInterval]
    differences: dict[str, TwoLevelInterval]


@dataclass(frozen=True)
class Lists:
    """Single lists of a run.

    Attributes:
        metric: by which they were chosen.
        worst: where it is lowest.
        best: where it is highest.
        lost: where it is furthest below the baseline's; empty without one.
        gained: where it is furthest above.
    """

    metric: str
    worst: list[ShownList]
    best: list[ShownList]
    lost: list[ShownList]
    gained: list[ShownList]


@dataclass(frozen=True)
class RunPart:
    """One run.

    Attributes:
        name: its short name.
        path: its folder.
        model: name of the model.
        settings: those that are not the model's defaults.
        parameters: their number; None for a model that has none.
        best_epoch: the epoch, or the number of trees, that is used.
        epochs: number of epochs, or of trees, trained.
        seconds: duration of the training.
        versions: of the libraries.
        command: that trains the same.
        curves: None for a model without epochs.
        probabilities: whether the loss makes scores the logits of probabilities.
        calibration: by task; "" where there is one score.
        gates: by the gate's name; empty without experts.
        attention: by grouping a map, see `AttentionMap.as_json`; empty without attention.
        attention_lists: number of lists that the maps are taken from.
        lists: single lists.
    """

    name: str
    path: str
    model: str
    settings: dict[str, Any]
    parameters: int | None
    best_epoch: int
    epochs: int
    seconds: float
    versions: dict[str, str]
    command: str
    curves: LearningCurves | None
    probabilities: bool
    calibration: dict[str, CalibrationReport]
    gates: dict[str, GateReport]
    attention: dict[str, Any]
    attention_lists: int
    lists: Lists


@dataclass(frozen=True)
class Report:
    """Everything.

    Attributes:
        command: that made it.
        made: date and time, ISO 8601 in UTC.
        split: the split that was judged.
        metric: the metric of categories and lists.
        data: the data set.
        evaluation: means, intervals, comparisons, and the table of top categories.
        seeds: groups of runs that differ in their seed; empty where there are no two such runs.
        sub_categories: the table of sub-categories; empty without a hierarchy.
        sizes: per level (`top`, `sub`) and model, by buckets of training size; empty without a hierarchy.
        runs: the runs.
    """

    command: str
    made: str
    split: str
    metric: str
    data: DataPart
    evaluation: EvaluationReport
    seeds: list[SeedsPart]
    sub_categories: list[CategoryRow]
    sizes: dict[str, dict[str, list[SizeBucket]]]
    runs: list[RunPart]
