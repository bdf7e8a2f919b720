"""Summary of the synthetic study: losses by model and correlation, and the findings.

The runs of a seed share inputs, noise and the plane of the weight vectors for all models and
correlations, so differences are paired by run. Intervals are 95 % t intervals over runs. A few runs
get stuck with one task hardly learnt; their loss is several times that of the others and dominates
the mean. Therefore the findings use signed ranks, reported beside the means: see
`experiments.mmoe.rank_statistics`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from scipy import stats

from experiments.common.tables import interval_cell
from experiments.mmoe.rank_statistics import rank_interval, wilcoxon
from tfr_moe.evaluation import seed_interval

TOGETHER = "together"
"""Key of the mean over all correlations below the highest in each run."""
REFERENCE = "shared_bottom"


class Losses:
    """Final test losses by model and correlation, one number per run in the order of seeds.

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
        """Returns the losses of a cell by seed, [runs]."""
        cell = self._cells[model, correlation]
        return np.array([cell[seed] for seed in self.seeds])

    def degradation(self, model: str, correlation: float) -> NDArray[np.float64]:
        """Returns the loss minus that at the highest correlation, seed by seed, [runs]."""
        return self.of(model, correlation) - self.of(model, self.correlations[-1])

    def degradations(self, model: str) -> dict[str, NDArray[np.float64]]:
        """Returns the degradation at each lower correlation, and the mean of several."""
        lower = self.correlations[:-1]
        values = {str(p): self.degradation(model, p) for p in lower}
        if len(lower) > 1:
            values[TOGETHER] = np.mean(list(values.values()), axis=0)
        return values


def _interval(values: NDArray[np.float64]) -> dict[str, Any]:
    interval: dict[str, Any] = asdict(seed_interval(values))
    interval["p_value"] = _p_value(values)
    interval["by_ranks"] = asdict(rank_interval(values))
    interval["wilcoxon_p_value"] = wilcoxon(values)
    return interval


def _p_value(values: NDArray[np.float64]) -> float:
    """Two-sided one-sample t-test against 0; NaN below two values or without any spread."""
    if len(values) < 2 or np.ptp(values) <= 1e-12 * np.abs(values).max():
        return float("nan")
    return float(stats.ttest_1samp(values, 0.0).pvalue)


def summarize(losses: Losses) -> dict[str, Any]:
    """Returns all numbers of the findings, JSON-serializable.

    Returns:
        `loss`: model -> correlation -> mean, interval, median and quartiles of the final test loss.
        `degradation`: model -> correlation -> interval of the loss minus that at the highest
            correlation; `together` for their mean.
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


def mean_cell(cell: dict[str, float], signed: bool = False) -> str:
    """Formats a mean with its interval."""
    return interval_cell(cell["mean"], cell["low"], cell["high"], signed=signed)


def tables(summary: dict[str, Any]) -> list[Table]:
    """Returns tables of the losses and the differences."""
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
        table.add_row(model, *(mean_cell(cell, signed) for cell in row.values()))
    return table


def finding(summary: dict[str, Any]) -> list[str]:
    """Returns a line for each of the paper's two claims and each correlation, by the intervals."""
    lines = []
    for p, cell in summary["degradation"].get(REFERENCE, {}).items():
        lines.append(
            f"shared_bottom {_where(p)}: loss {_direction(cell, 'higher', 'lower')} than at "
            f"the highest correlation by {mean_cell(cell, signed=True)}{_ranks(cell)}"
        )
    for model, row in summary.get("less_degradation", {}).items():
        lines += [
            f"{model} {_where(p)}: degrades {_direction(cell, 'less', 'more')} than "
            f"shared_bottom, by {mean_cell(cell, signed=True)}{_ranks(cell)}"
            for p, cell in row.items()
        ]
    return lines


def _where(p: str) -> str:
    return "over all lower correlations" if p == TOGETHER else f"at correlation {p}"


def _ranks(cell: dict[str, Any]) -> str:
    """The rank statistics, if there are enough runs for an interval."""
    ranks = cell["by_ranks"]
    if np.isnan(ranks["low"]):
        return ""
    return (
        f"; by ranks {ranks['centre']:+.4f} [{ranks['low']:+.4f}, {ranks['high']:+.4f}], "
        f"Wilcoxon p = {cell['wilcoxon_p_value']:.3g}"
    )


def _direction(cell: dict[str, Any], positive: str, negative: str) -> str:
    ranks = cell["by_ranks"]
    interval = cell if np.isnan(ranks["low"]) else ranks
    if interval["low"] > 0:
        return positive
    return negative if interval["high"] < 0 else f"not measurably {positive} or {negative}"
