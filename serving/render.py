"""Answers for people: a ranked table with the experts that made it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from .client import Expert, Ranking


def render(ranking: Ranking, items: Sequence[Mapping[str, Any]]) -> RenderableType:
    """A table of rank, score and the fields of each item, best first; beneath it the experts.

    Args:
        ranking: the answer.
        items: those of the request, in its order.

    Returns:
        Something that `rich.print` shows.
    """
    fields = list(dict.fromkeys(name for item in items for name in item))
    item_level = any(item.experts for item in ranking.items)
    table = Table(title=f"{ranking.model} version {ranking.version}", title_justify="left")
    for name in ("rank", "item", "score"):
        table.add_column(name, justify="right")
    for name in fields:
        numeric = all(isinstance(item.get(name, 0), (int, float)) for item in items)
        table.add_column(Text(name), justify="right" if numeric else "left")
    if item_level:
        table.add_column("experts (weight)")
    for place, ranked in enumerate(ranking.items, start=1):
        item = items[ranked.index]
        row = [str(place), str(ranked.index), f"{ranked.score:.4f}"]
        row += [_shown(item.get(name)) for name in fields]
        if item_level:
            row.append(_listed(ranked.experts))
        table.add_row(*map(Text, row))
    if not ranking.experts:
        return table
    return Group(table, Text(f"made by experts (weight): {_listed(ranking.experts)}"))


def to_json(ranking: Ranking, items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The same as plain data: model, version, items best first with their scores, and the experts."""

    def experts(found: Sequence[Expert]) -> list[dict[str, Any]]:
        return [{"id": expert.id, "weight": expert.weight} for expert in found]

    ranked = []
    for place, item in enumerate(ranking.items, start=1):
        entry: dict[str, Any] = {"rank": place, "index": item.index, "score": item.score}
        entry["item"] = dict(items[item.index])
        if item.experts:
            entry["experts"] = experts(item.experts)
        ranked.append(entry)
    return {
        "model": ranking.model,
        "version": ranking.version,
        "items": ranked,
        "experts": experts(ranking.experts),
    }


def _listed(experts: Sequence[Expert]) -> str:
    return ", ".join(f"{expert.id} ({expert.weight:.2f})" for expert in experts)


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (list, tuple)):
        return " ".join(_shown(part) for part in value)
    return str(value)
