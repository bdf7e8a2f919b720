"""What the runs of the synthetic study add up to: losses by model and correlation, and the finding.

The runs of a seed share inputs, noise and the plane of the weight vectors whatever the model and the
correlation, so that differences are taken run by run. Intervals are 95 % t intervals over runs. Now and then
a run stays where one of its tasks has learnt next to nothing: its loss is then several times that of the
others, which a mean feels more than anything else. So what Wilcoxon's signed ranks say stands beside it, and
the finding goes by that: see `tfr_moe.evaluation.significance.rank_interval`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from scipy import stats

from tfr_moe.evaluation.claims import wilcoxon
from tfr_moe.evaluation.significance import rank_interval, seed_interval

TOGETHER = "together"
"""The key of what all correlations below the highest say together, by their mean in each run."""
REFERENCE = "shared_bottom"


class Losses:
    """Final test losses by model and correlation: arrays of one number per run, in the same order.

    Args:
        runs: mappings with `model`, `correlation`, `seed` and `loss`.
    """

    def __init__(self, runs: Sequence[dict[str, Any]]):
        self.models = list(dict.fromkeys(run["model"] for run in runs))
        self.correlations = sorted({run["correlation"] for run in runs})
        cells: dict[tuple[str, float], dict[int, float]] = {}
        for run in runs:
            cells.setdefault((run["model"], run["correlation"]), {})[run["seed"]] = run["loss"]
        self._cells = cells
        self.seeds = sorted({run["seed"] for run in runs})

    def of(self, model: str, correlation: float) -> NDArray[np.float64]:
        """[runs] losses of a cell, by seed."""
        cell = self._cells[model, correlation]
        return np.array([cell[seed] for seed in self.seeds])

    def degradation(self, model: str, correlation: float) -> NDArray[np.float64]:
        """[runs]: how much higher the loss is than at the highest correlation, seed by seed."""
        return self.of(model, correlation) - self.of(model, self.correlations[-1])

    def degradations(self, model: str) -> dict[str, NDArray[np.float64]]:
        """The degradation at each lower correlation, and where there are several their mean too."""
        lower = self.correlations[:-1]
        found = {str(p): self.degradation(model, p) for p in lower}
        if len(lower) > 1:
            found[TOGETHER] = np.mean(list(found.values()), axis=0)
        return found


def _interval(values: NDArray[np.float64]) -> dict[str, Any]:
    found: dict[str, Any] = asdict(seed_interval(values))
    found["p_value"] = _p_value(values)
    found["by_ranks"] = asdict(rank_interval(values))
    found["wilcoxon_p_value"] = wilcoxon(values)
    return found


def _p_value(values: NDArray[np.float64]) -> float:
    """Of the two-sided one-sample t-test against 0; NaN below two values or without any spread."""
    if len(values) < 2 or np.ptp(values) <= 1e-12 * np.abs(values).max():
        return float("nan")
    return float(stats.ttest_1samp(values, 0.0).pvalue)


def summarize(losses: Losses) -> dict[str, Any]:
    """Everything of the finding, JSON-serializable.

    Returns:
        `loss`: model -> correlation -> mean, interval, median and quartiles of the final test loss.
        `degradation`: model -> correlation -> interval of the loss minus that at the highest correlation;
            at `together` of their mean.
        `less_degradation`: the same for the reference's degradation minus the model's.
        `gain`: the same for the reference's loss minus the model's.
    """
    others = [model for model in losses.models if model != REFERENCE]
    summary: dict[str, Any] = {"runs": len(losses.seeds), "reference": REFERENCE}
    summary["loss"] = {
        model: {str(p): _spread(losses.of(model, p)) for p in losses.correlations}
        for model in losses.models
    }
    summary["degradation"] = {
        model: {key: _interval(values) for key, values in losses.degradations(model).items()}
        for model in losses.models
    }
    if REFERENCE not in losses.models:
        return summary
    summary["gain"] = {
        model: {
            str(p): _interval(losses.of(REFERENCE, p) - losses.of(model, p))
            for p in losses.correlations
        }
        for model in others
    }
    reference = losses.degradations(REFERENCE)
    summary["less_degradation"] = {
        model: {
            key: _interval(reference[key] - values)
            for key, values in losses.degradations(model).items()
        }
        for model in others
    }
    return summary


def _spread(values: NDArray[np.float64]) -> dict[str, float]:
    return {
        **asdict(seed_interval(values)),
        "lower_quartile": float(np.quantile(values, 0.25)),
        "median": float(np.median(values)),
        "upper_quartile": float(np.quantile(values, 0.75)),
    }


def shown(found: dict[str, float], signed: bool = False) -> str:
    """`0.1234 [0.1200, 0.1268]`; no brackets where there is no interval."""
    form = "+.4f" if signed else ".4f"
    if np.isnan(found["low"]):
        return format(found["mean"], form)
    return f"{found['mean']:{form}} [{found['low']:{form}}, {found['high']:{form}}]"


def tables(summary: dict[str, Any]) -> list[Table]:
    """The losses and the differences, to print."""
    runs = summary["runs"]
    parts = [("loss", f"test loss, mean of {runs} runs [95 %]", False)]
    parts.append(("degradation", "loss minus that at the highest correlation [95 %]", True))
    if "gain" in summary:
        parts.append(("gain", "loss of shared_bottom minus that of the model [95 %]", True))
        parts.append(
            ("less_degradation", "degradation of shared_bottom minus that of the model", True)
        )
    return [_table(summary[part], title, signed) for part, title, signed in parts]


def _table(cells: dict[str, dict[str, Any]], title: str, signed: bool) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("model")
    for p in next(iter(cells.values())):
        table.add_column(p if p == TOGETHER else f"correlation {p}", justify="right")
    for model, row in cells.items():
        table.add_row(model, *(shown(found, signed) for found in row.values()))
    return table


def finding(summary: dict[str, Any]) -> list[str]:
    """The paper's two claims in a line each, as the intervals have them."""
    lines = []
    for p, found in summary["degradation"].get(REFERENCE, {}).items():
        lines.append(
            f"shared_bottom {_where(p)}: loss {_direction(found, 'higher', 'lower')} than at "
            f"the highest correlation by {shown(found, signed=True)}{_ranks(found)}"
        )
    for model, row in summary.get("less_degradation", {}).items():
        lines += [
            f"{model} {_where(p)}: degrades {_direction(found, 'less', 'more')} than "
            f"shared_bottom, by {shown(found, signed=True)}{_ranks(found)}"
            for p, found in row.items()
        ]
    return lines


def _where(p: str) -> str:
    return "over all lower correlations" if p == TOGETHER else f"at correlation {p}"


def _ranks(found: dict[str, Any]) -> str:
    """What the signed ranks say, where there are enough runs for an interval."""
    ranks = found["by_ranks"]
    if np.isnan(ranks["low"]):
        return ""
    return (
        f"; by ranks {ranks['centre']:+.4f} [{ranks['low']:+.4f}, {ranks['high']:+.4f}], "
        f"Wilcoxon p = {found['wilcoxon_p_value']:.3g}"
    )


def _direction(found: dict[str, Any], positive: str, negative: str) -> str:
    ranks = found["by_ranks"]
    interval = found if np.isnan(ranks["low"]) else ranks
    if interval["low"] > 0:
        return positive
    return negative if interval["high"] < 0 else f"not measurably {positive} or {negative}"
