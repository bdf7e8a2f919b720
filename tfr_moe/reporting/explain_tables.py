"""An explanation for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tfr_moe.reporting.explain import Choice, ExplainedItem, Explanation

_FIELDS = 4
_ROUNDING = 1e-3  # of scores in reduced precision, relative


def render(found: Explanation) -> Iterator[RenderableType]:
    """What was chosen, the scores and their parts, and what idle experts would have said."""
    for name, choices in found.gates.items():
        title = f"gate of {name}" if name else "gate"
        yield Text(f"{title}: experts (weight) {_listed(choices)}")
    if found.gate_logits:
        logits = ", ".join(f"{i}: {value:.3f}" for i, value in enumerate(found.gate_logits))
        yield Text(f"its logits by expert: {logits}")
    parts = any(item.contributions for item in found.items)
    yield Text(f"{found.model}: score{' = sum of weight x what the expert says' if parts else 's'}")
    yield _scores(found)
    if any(item.idle for item in found.items):
        yield Text("what the experts that were not chosen would have said:")
        yield _idle(found)
    if found.note:
        yield Text(found.note)


def _listed(choices: list[Choice]) -> str:
    return ", ".join(f"{choice.expert} ({choice.weight:.3f})" for choice in choices)


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, show_edge=False)


def _scores(found: Explanation) -> Table:
    first = found.items[0]
    table = _table()
    fields = list(dict.fromkeys(name for item in found.items for name in item.item))[:_FIELDS]
    for name in ("rank", "item", "score", *first.tasks):
        table.add_column(Text(name), justify="right")
    parts = len(first.contributions)
    for place in range(parts):
        title = "#expert: weight x logit" if place == 0 else ""
        table.add_column(title, justify="right", no_wrap=True)
    rest = any(abs(item.rest) > _ROUNDING * max(1.0, abs(item.score)) for item in found.items)
    if rest:
        table.add_column("rest", justify="right")
    for name in first.gates:
        table.add_column(Text(f"gate of {name}" if name else "gate"))
    for name in fields:
        table.add_column(Text(name))
    for item in found.items:
        table.add_row(*map(Text, _row(item, rest, fields)))
    return table


def _row(item: ExplainedItem, rest: bool, fields: list[str]) -> list[str]:
    cells = [str(item.rank), str(item.index), f"{item.score:.4f}"]
    cells += [f"{score:.4f}" for score in item.tasks.values()]
    cells += [
        f"#{part.expert}: {part.weight:.2f} x {part.logit:.3f} = {part.part:+.3f}"
        for part in item.contributions
    ]
    if rest:
        cells.append(f"{item.rest:+.3f}")
    cells += [_listed(choices) for choices in item.gates.values()]
    return cells + [str(item.item.get(name, "")) for name in fields]


def _idle(found: Explanation) -> Table:
    table = _table()
    table.add_column("item", justify="right")
    experts = sorted({expert for item in found.items for expert in item.idle})
    for expert in experts:
        table.add_column(f"#{expert}", justify="right")
    for item in found.items:
        said = [f"{item.idle[e]:.3f}" if e in item.idle else "" for e in experts]
        table.add_row(str(item.index), *said)
    return table
