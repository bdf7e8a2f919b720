"""The result of a comparison: a row for each model, differences, and what to ship."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.table import Table

from tfr_moe.config import BASELINE_NAMES
from tfr_moe.evaluation.results import PerListResult, t_interval
from tfr_moe.evaluation.significance import Comparison, aligned_values, compare
from tfr_moe.utils.console import TableColumn, fitted_table
from tfr_moe.utils.formats import DASH, count, setting

TOWERS = ("dnn", "wide_dnn", "mlp")
"""The single towers."""
_CHEAPER = 0.8
"""A model is named as cheaper if it trains in less than this share of the time."""


@dataclass(frozen=True)
class Entry:
    """A model.

    Attributes:
        runs: names of its runs, below `runs/`, one for each seed.
        learning_rate: that of its runs, selected on validation; None if it has none.
        validation: mean of the metric on the lists that models are selected by.
        test: mean on the evaluated lists; `low` and `high` are its 95 % t interval over lists.
        by_run: the mean on the evaluated lists of each run.
        best_run: the run with the highest validation metric.
        differences: other model -> this model minus it on the evaluated lists: from the references,
            and from the first and the second model.
        seconds: mean training time; NaN if it is not known.
        parameters: number of parameters; for trees, of leaves; None if it is not known.
    """

    model: str
    runs: list[str]
    learning_rate: float | None
    validation: float
    test: float
    low: float
    high: float
    by_run: list[float]
    best_run: str
    differences: dict[str, Comparison]
    seconds: float
    parameters: int | None


@dataclass(frozen=True)
class Leaderboard:
    """The models, best validation metric first.

    Attributes:
        references: the models that the others are compared with, and what they are: the baseline,
            or the best tree (or linear ranker) and the best single tower by validation.
        baseline: None for the best tree and tower.
        headline: who wins, if anyone does, in a few words.
        verdict: sentences that say what won, what is not significant, and what to ship.
    """

    metric: str
    split: str
    entries: list[Entry]
    references: dict[str, str]
    baseline: str | None
    ship: str
    headline: str
    verdict: str

    def table(self, width: int | None = None) -> Table:
        """The leaderboard for a terminal of `width` columns."""
        entries = self.entries
        columns = [
            TableColumn("model", [entry.model for entry in entries], numeric=False),
            TableColumn(self.split, [f"{entry.test:.4f}" for entry in entries]),
        ]
        for reference in self.references:
            cells = [_short(entry.differences.get(reference)) for entry in entries]
            columns.append(TableColumn(f"minus {reference}", cells))
        columns += [
            TableColumn("time", [_seconds(entry) for entry in entries]),
            TableColumn(
                "parameters", [count(e.parameters) if e.parameters else DASH for e in entries]
            ),
            TableColumn("validation", [f"{entry.validation:.4f}" for entry in entries]),
            TableColumn("rate", [setting(entry.learning_rate) for entry in entries]),
        ]
        return fitted_table(
            columns,
            always=2,
            width=width,
            title=f"{self.metric}, best validation first",
            caption=f"{_seeds(entries[0])}; differences with 95 % intervals, * significant.",
            hint="in leaderboard.json",
        )


def _seconds(entry: Entry) -> str:
    return DASH if math.isnan(entry.seconds) else f"{entry.seconds:.0f} s"


def _seeds(entry: Entry) -> str:
    return f"{len(entry.runs)} seed{'s' if len(entry.runs) > 1 else ''} each"


def _short(difference: Comparison | None) -> str:
    if difference is None:
        return "-"
    half_width = (difference.high - difference.low) / 2
    star = "*" if difference.significant else " "
    return f"{difference.difference:+.4f} ±{half_width:.4f}{star}"


def difference_text(difference: Comparison) -> str:
    """A difference with its interval, and whether it is significant."""
    interval = f"[{difference.low:+.4f}, {difference.high:+.4f}]"
    said = "significant" if difference.significant else "not significant"
    if not difference.includes_seeds:
        said = "over lists only"
    return f"{difference.difference:+.4f} {interval} ({said})"


def make_leaderboard(
    metric: str,
    validation: Mapping[str, Sequence[PerListResult]],
    test: Mapping[str, Sequence[PerListResult]],
    trained: Mapping[str, Mapping[str, Mapping[str, Any]]],
    rates: Mapping[str, float | None],
    split: str = "test",
    baseline: str | None = None,
) -> Leaderboard:
    """Ranks models by their mean validation metric and compares them on the test split.

    Args:
        metric: metric of all results, higher is better.
        validation: model -> results of its runs on the lists that models are selected by.
        test: the same on the evaluated lists.
        trained: model -> name of the run -> its `metrics.json`, in the same order.
        baseline: the model to compare with; None for the best tree and the best single tower.
    """
    values = {model: [_mean(r, metric) for r in results] for model, results in validation.items()}
    ranked = sorted(values, key=lambda model: -float(np.mean(values[model])))
    kinds = {"the best tree": BASELINE_NAMES, "the best single tower": TOWERS}
    references = {
        model: kind
        for kind, names in kinds.items()
        for model in [model for model in ranked if model in names][:1]
    }
    if baseline is not None:
        references = {baseline: "the baseline"}
    entries = []
    for model in ranked:
        others = dict.fromkeys([*references, *ranked[:2]])
        runs = trained[model]
        mean, _, low, high = t_interval(aligned_values(test[model], metric).mean(axis=0))
        entries.append(
            Entry(
                model=model,
                runs=list(runs),
                learning_rate=rates[model],
                validation=float(np.mean(values[model])),
                test=mean,
                low=low,
                high=high,
                by_run=[_mean(result, metric) for result in test[model]],
                best_run=list(runs)[int(np.argmax(values[model]))],
                differences={
                    o: compare(test[model], test[o], metric) for o in others if o != model
                },
                seconds=float(np.mean([run.get("seconds", math.nan) for run in runs.values()])),
                parameters=next(iter(runs.values())).get("parameters"),
            )
        )
    headline, verdict = _verdict(metric, split, entries, references)
    return Leaderboard(metric, split, entries, references, baseline, ranked[0], headline, verdict)


def _mean(result: PerListResult, metric: str) -> float:
    return float(t_interval(aligned_values([result], metric)[0])[0])


def _verdict(
    metric: str, split: str, entries: Sequence[Entry], named: Mapping[str, str]
) -> tuple[str, str]:
    """Who wins in a few words, and lines: how sure it is, what is level with it, what to ship."""
    best, *others = entries
    value = f"{best.test:.4f} [{best.low:.4f}, {best.high:.4f}]"
    mean = f"{split.capitalize()} {metric} of {best.model}: {value}"
    if not others:
        headline = f"Nothing to compare {best.model} with"
        return headline, f"{headline}. {mean}, {_seeds(best)}."
    against = {name: what for name, what in named.items() if name != best.model}
    against = against or {others[0].model: "the second"}
    level = [e for e in others if not e.differences[best.model].significant]
    above = [e.model for e in others if e not in level and e.differences[best.model].low > 0]
    headline = _headline(split, best, others, [e.model for e in level], above)
    differences = ", and ".join(
        f"{difference_text(best.differences[name])} against {name}, {what}"
        for name, what in against.items()
    )
    lines = [f"{headline}. {mean} ({_seeds(best)}), {differences}."]
    sentence = "All other models differ significantly from it."
    if len(best.runs) == 1:
        sentence = "With one training run each there is no winner: another run may differ by more."
    elif level:
        names = ", ".join(entry.model for entry in level)
        sentence = f"Not significantly different from {best.model}: {names}."
    if above:
        sentence += f" Significantly better on {split}: {', '.join(above)}."
    fastest = min([best, *level], key=lambda entry: entry.seconds)
    advice = f"Ship {best.model}"
    short, long = _seconds(fastest), _seconds(best)
    if short != long and fastest.seconds < _CHEAPER * best.seconds:
        advice += f", or {fastest.model} if training time matters ({short}, not {long})"
    return headline, "\n".join([*lines, sentence, f"{advice}."])


def _headline(
    split: str, best: Entry, others: Sequence[Entry], level: Sequence[str], above: Sequence[str]
) -> str:
    if not all(entry.differences[best.model].includes_seeds for entry in others):
        return f"{best.model} leads, by one training run each"
    if above:
        return f"{best.model} leads on validation lists, {_and(above)} on {split} lists"
    if len(level) == len(others):
        return f"No significant winner: {best.model} leads"
    if level:
        return f"{best.model} leads, but not significantly over {_and(level)}"
    return f"{best.model} wins"


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
