"""Content of a report as plain data, for the page and for JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tfr_moe.analysis.calibration import Calibration
from tfr_moe.analysis.importance import Importance
from tfr_moe.analysis.learning_curves import LearningCurves
from tfr_moe.analysis.list_examples import ShownList
from tfr_moe.evaluation.breakdown import CategoryRow
from tfr_moe.evaluation.evaluate import EvaluationReport
from tfr_moe.evaluation.leaderboard import Leaderboard
from tfr_moe.scorers.gate_maps import GateReport


@dataclass(frozen=True)
class DataPart:
    """The data set.

    Attributes:
        path: its folder.
        source: input of `tfr-moe build`; None if the folder was made otherwise.
        period: the time of the evaluated lists; None if it is not known.
        splits: per split the counts of the manifest: lists, items, positives.
        features: number of features by kind.
        labels: label names, the primary one first.
        hierarchy: names of the columns of top and sub-category; None without a hierarchy.
        categories: number of top and of sub-categories in the training split.
        notes: caveats of the data set by name, such as negative sampling.
        warnings: of `tfr-moe build`.
    """

    path: str
    source: str | None
    period: str | None
    splits: dict[str, dict[str, int]]
    features: dict[str, int]
    labels: tuple[str, ...]
    hierarchy: tuple[str, str] | None
    categories: tuple[int, int]
    notes: dict[str, Any]
    warnings: list[str]


@dataclass(frozen=True)
class RunPart:
    """One run.

    Attributes:
        name: short name.
        path: its folder.
        model: name of the model.
        settings: settings that differ from the model's defaults.
        parameters: number of parameters; None for a model without parameters.
        best_epoch: the epoch, or the number of trees, that is used.
        epochs: number of epochs, or of trees, trained.
        seconds: training time.
        milliseconds: median time to score one list, here and one at a time; NaN without lists.
        versions: versions of the libraries.
        command: command line that repeats the training.
        curves: None for a model that is not trained by epochs.
        gates: by name of the gate; empty without experts.
        warnings: what has collapsed in the gates, and what to change.
        calibration: of the scores as probabilities; None for a loss under which they are none.
        attention: by grouping a map, see `AttentionMap.as_json`; empty without attention.
        attention_lists: number of lists in the attention maps.
        lists: example lists by kind: `worst` and `best` by `Report.metric`, and `lost` and `gained`
            furthest below and above the baseline, the last two empty without one; {} for all runs
            but the subject.
        importance: of the features of the subject; None if it was not asked for.
    """

    name: str
    path: str
    model: str
    settings: dict[str, Any]
    parameters: int | None
    best_epoch: int
    epochs: int
    seconds: float
    milliseconds: float
    versions: dict[str, str]
    command: str
    curves: LearningCurves | None
    gates: dict[str, GateReport]
    warnings: list[str]
    calibration: Calibration | None
    attention: dict[str, Any]
    attention_lists: int
    lists: dict[str, list[ShownList]]
    importance: Importance | None = None


@dataclass(frozen=True)
class Report:
    """Content of a report on one or more runs.

    Attributes:
        command: command line that made the report.
        made: date and time, ISO 8601 in UTC.
        split: the evaluated split.
        metric: metric of the category tables and of example lists.
        data: the data set.
        evaluation: means, intervals, comparisons, and the table of top categories.
        sub_categories: table of sub-categories; empty without a hierarchy.
        runs: the runs, the baseline first.
        leaderboard: of a comparison that the runs are the best of, or of the runs as given, those
            aggregated that differ in their seed only.
        subject: the run that categories, gate and lists are shown of: the best one, or if that is
            the baseline, the best other one.
        list_counts: number of lists that the subject ranks `better` and `worse` than the baseline,
            and `equal`; empty without a baseline.
    """

    command: str
    made: str
    split: str
    metric: str
    data: DataPart
    evaluation: EvaluationReport
    sub_categories: list[CategoryRow]
    runs: list[RunPart]
    leaderboard: Leaderboard
    subject: str
    list_counts: dict[str, int]

    @property
    def of_subject(self) -> RunPart:
        """The part of `subject`."""
        return next(run for run in self.runs if run.name == self.subject)
