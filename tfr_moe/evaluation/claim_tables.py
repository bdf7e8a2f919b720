"""Claims as a table for the terminal and as Markdown, from the same cells."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from tfr_moe.evaluation.claims import Claim

HEADINGS = (
    "model",
    "minus",
    "difference [95 %]",
    "p seeds+lists",
    "p seeds",
    "p lists",
    "g seeds",
    "r lists",
    "runs",
)
CAPTION = (
    "95 % and p seeds+lists: two-level bootstrap; p seeds: Welch's t of the runs' means; p lists: "
    "Wilcoxon, blind to the seed. All p after Holm within the table. g: Hedges; r: rank-biserial."
)


def p_text(value: float) -> str:
    """A p-value for a table; - where there is none.

    Example:
        >>> p_text(0.03), p_text(2e-7), p_text(float("nan"))
        ('0.0300', '2e-07', '-')
    """
    if math.isnan(value):
        return "-"
    return f"{value:.4f}" if value >= 0.0001 else f"{value:.0e}"


def _effect(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:+.2f}"


def judged(claims: Sequence[Claim]) -> str:
    """How many lists the metric could judge, of how many.

    Raises:
        ValueError: without claims.
    """
    if not claims:
        raise ValueError("there are no claims")
    return f"{claims[0].judged:,} of {claims[0].lists:,} lists judged"


def _difference(claim: Claim) -> str:
    return f"{claim.difference:+.4f} [{claim.low:+.4f}, {claim.high:+.4f}]"


def claim_cells(claim: Claim) -> list[str]:
    """The cells of `HEADINGS`."""
    return [
        claim.model,
        claim.reference,
        _difference(claim),
        p_text(claim.holm_both),
        p_text(claim.holm_seeds),
        p_text(claim.holm_lists),
        _effect(claim.effect_seeds),
        _effect(claim.effect_lists),
        f"{claim.runs}, {claim.reference_runs}",
    ]


def claim_table(claims: Sequence[Claim]) -> Table:
    """The claims of one metric for the terminal."""
    table = Table(
        title=f"{claims[0].metric}: {judged(claims)}",
        caption=CAPTION,
        title_justify="left",
        caption_justify="left",
    )
    for place, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="left" if place < 2 else "right", no_wrap=place < 3)
    for claim in claims:
        table.add_row(*(escape(cell) for cell in claim_cells(claim)))
    return table


def difference_table(claims: Sequence[Claim]) -> Table:
    """The claims of one metric, a row for each model and a column for each reference: for many models.

    A star marks p seeds+lists below 0.05 after Holm.
    """
    references = list(dict.fromkeys(claim.reference for claim in claims))
    table = Table(
        title=f"{claims[0].metric}: {judged(claims)}",
        caption="95 %: two-level bootstrap over seeds and lists. * p < 0.05 by it, after Holm.",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("model")
    for reference in references:
        table.add_column(escape(f"minus {reference}"), no_wrap=True)
    found = {(claim.model, claim.reference): claim for claim in claims}
    for model in dict.fromkeys(claim.model for claim in claims):
        cells = []
        for reference in references:
            claim = found.get((model, reference))
            star = "" if claim is None or not claim.holm_both < 0.05 else " *"
            cells.append("" if claim is None else f"{_difference(claim)}{star}")
        table.add_row(escape(model), *map(escape, cells))
    return table


def claim_markdown(claims: Sequence[Claim]) -> list[str]:
    """The claims of one metric as lines of Markdown."""
    return [
        f"{claims[0].metric}: {judged(claims)}. {CAPTION}",
        "",
        f"| {' | '.join(HEADINGS)} |",
        "|---" * len(HEADINGS) + "|",
        *(f"| {' | '.join(claim_cells(claim))} |" for claim in claims),
    ]


def by_metric(claims: Sequence[Claim]) -> dict[str, list[Claim]]:
    """The families: claims by metric, in order."""
    found: dict[str, list[Claim]] = {}
    for claim in claims:
        found.setdefault(claim.metric, []).append(claim)
    return found
