"""Sweeps of lambdas, experts or inputs of the gate as Markdown beside the paper's numbers.

The paper's numbers are test AUC on its own data; a sweep's are means over seeds on the validation
split, ± the standard deviation over seeds. Orders can be compared, levels can't. Below the table is
what the paper concluded, and whether the sweep agrees beyond seed variance.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from tfr_moe.errors import UserError
from tfr_moe.tuning import summarize_sweep

LAMBDAS = (0.1, 0.01, 0.001, 0.0001)
TABLE_VIII = {  # lambda_2 -> test AUC for the lambda_1 of LAMBDAS
    0.1: (0.8167, 0.8140, 0.8167, 0.8177),
    0.01: (0.8217, 0.8212, 0.8172, 0.8214),
    0.001: (0.8221, 0.8168, 0.8227, 0.8221),
    0.0001: (0.8217, 0.8223, 0.8225, 0.8172),
}
TABLE_VII = {
    "SC": 0.8212,
    "TC+SC": 0.8137,
    "query+TC+SC": 0.8135,
    "user+TC+SC": 0.8131,
    "all": 0.8129,
}
EXPERTS = ("num_experts", "top_k", "num_adversarial")


def table(headings: list[str], rows: list[list[str]]) -> list[str]:
    """Returns the lines of a Markdown table."""
    return [f"| {' | '.join(row)} |" for row in (headings, ["---"] * len(headings), *rows)]


def by_values(summary: Any, names: tuple[str, ...]) -> dict[tuple[Any, ...], Any]:
    """Returns the entries of a `summarize_sweep` by the values of the named hyper-parameters."""
    return {tuple(e.trial.hyperparameters[n] for n in names): e for e in summary.entries}


def cell(entry: Any) -> str:
    """Formats a result: bold if it is the best, ~ if its gap is within seed variance."""
    if entry is None:
        return "not run"
    if entry.rank == 1:
        return f"**{entry.text}**"
    return f"{entry.text} ~" if entry.tied else entry.text


def least_difference(summary: Any) -> float | None:
    """Returns the least significant difference of two trials; None without two seeds."""
    if summary.noise is None or summary.best is None:
        return None
    seeds = len(summary.best.trial.seeds)
    return summary.noise.least_difference(seeds)


def verdict(difference: float, noise: float | None) -> str:
    """Returns whether a difference supports the paper's conclusion."""
    if noise is None:
        return "unknown, one seed"
    if abs(difference) <= noise:
        return "undecided, within seed variance"
    return "yes" if difference > 0 else "no, the reverse"


def table_viii(summary: Any) -> list[str]:
    """Returns the lines of Table VIII: both lambdas."""
    entries = by_values(summary, ("hsc_weight", "adversarial_weight"))
    lines = table(
        ["", *(f"λ₁ = {value:g}" for value in LAMBDAS)],
        [
            [f"λ₂ = {down:g}"]
            + [
                f"{cell(entries.get((across, down)))} (paper {paper:.4f})"
                for across, paper in zip(LAMBDAS, row, strict=True)
            ]
            for down, row in TABLE_VIII.items()
        ],
    )
    corner, best = entries.get((0.001, 0.001)), summary.best
    if corner is not None and best is not None:
        answer = "yes"
        if corner.rank > 1:
            answer = verdict(-corner.gap, least_difference(summary)).removesuffix(", the reverse")
        lines += ["", f"- λ₁ = λ₂ = 0.001 is best: {answer} (gap {corner.gap:.4f})."]
    large = [e.value for (_, down), e in entries.items() if down == 0.1]
    small = [e.value for (_, down), e in entries.items() if down != 0.1]
    if large and small:
        difference = _sign(summary) * (fmean(small) - fmean(large))
        lines.append(
            "- λ₂ = 0.1 is worse than smaller ones on average (0.8163 against 0.8207 in the "
            f"paper): here by {difference:+.4f}."
        )
    return lines


def _sign(summary: Any) -> int:
    return 1 if summary.higher else -1


def table_vii(summary: Any, gate_inputs: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns the lines of Table VII: the features that the gate sees, by the name of the row."""
    entries = {tuple(e.trial.hyperparameters["gate_features"]): e for e in summary.entries}
    named = {
        name: entries[tuple(features)]
        for name, features in gate_inputs.items()
        if tuple(features) in entries
    }
    lines = table(
        ["gate input", "here", "paper"],
        [[name, cell(named.get(name)), f"{paper:.4f}"] for name, paper in TABLE_VII.items()],
    )
    if "SC" not in named:
        return lines
    lines.append("")
    for name in TABLE_VII:
        if name != "SC" and name in named:
            difference = _sign(summary) * (named["SC"].value - named[name].value)
            answer = verdict(difference, least_difference(summary))
            lines.append(f"- SC is better than {name}: {answer} ({difference:+.4f}).")
    return lines


def fig_6(summary: Any) -> list[str]:
    """Returns the lines of Fig. 6: N, K, D. The paper draws bars without numbers."""
    entries = by_values(summary, EXPERTS)
    lines = table(
        ["N, K, D", "here"],
        [[", ".join(map(str, key)), cell(entries[key])] for key in sorted(entries)],
    )
    lines.append("")
    pairs = [
        _sign(summary) * (entry.value - entries[n, 2, d].value)
        for (n, k, d), entry in entries.items()
        if k == 4 and (n, 2, d) in entries
    ]
    if pairs:
        lines.append(
            f"- K = 4 is better than K = 2, the rest being equal: in {sum(p > 0 for p in pairs)} "
            f"of {len(pairs)} pairs, on average by {fmean(pairs):+.4f}."
        )
    if (16, 2, 2) in entries:
        entry = entries[16, 2, 2]
        lines.append(f"- (16, 2, 2) is best: here it is number {entry.rank} of {len(entries)}.")
    return lines


def sweep_lines(sweep: Path, gate_inputs: Mapping[str, Sequence[str]] = {}) -> list[str]:
    """Returns the lines of the table that a sweep belongs to.

    Args:
        sweep: its folder.
        gate_inputs: the rows of Table VII, with the features that the gate sees.

    Raises:
        UserError: for a sweep of other hyper-parameters.
    """
    summary = summarize_sweep(sweep)
    names = {name for entry in summary.entries for name in entry.trial.hyperparameters}
    for needed, make in (
        ({"gate_features"}, functools.partial(table_vii, gate_inputs=gate_inputs)),
        ({"hsc_weight", "adversarial_weight"}, table_viii),
        (set(EXPERTS), fig_6),
    ):
        if needed <= names:
            lines = make(summary)
            break
    else:
        raise UserError(f"sweep {sweep}: varies neither lambdas, experts nor gate_features")
    noise = least_difference(summary)
    if noise is not None:
        lines += [
            "",
            f"Two trials differ significantly if they are {noise:.4f} apart; ~ marks trials closer "
            "to the best than that.",
        ]
    return lines
