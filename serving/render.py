"""Answers for people: a ranked table with the experts that made it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from .client import Expert, Ranking

_FIXED_WIDTH = 24  # rank, item and score with their borders


def render(
    ranking: Ranking, items: Sequence[Mapping[str, Any]], width: int | None = None
) -> RenderableType:
    """A table of rank, score and the fields of each item, best first; beneath it the experts.

    Args:
        ranking: the answer.
        items: those of the request, in its order.
        width: columns of the terminal; fields that don't fit are named beneath. None shows all.

    Returns:
        Something that `rich.print` shows.
    """
    named = dict.fromkeys(name for item in items for name in item)
    columns = {name: [_shown(item.get(name)) for item in items] for name in named}
    tasks = {f"{task} score": task for task in (ranking.items[0].tasks if ranking.items else ())}
    columns = {**{title: [""] * len(items) for title in tasks}, **columns}
    for ranked in ranking.items:
        for title, task in tasks.items():
            columns[title][ranked.index] = f"{ranked.tasks[task]:.4f}"
    item_level = any(item.experts for item in ranking.items)
    if item_level:
        columns["experts (weight)"] = [""] * len(items)
        for ranked in ranking.items:
            columns["experts (weight)"][ranked.index] = _listed(ranked.experts)
    fields = _fitting(columns, width)
    table = Table(title=f"{ranking.model} version {ranking.version}", title_justify="left")
    for name in ("rank", "item", "score"):
        table.add_column(name, justify="right")
    for name in fields:
        numeric = name in tasks or all(
            isinstance(item.get(name, ""), (int, float)) for item in items
        )
        table.add_column(Text(name), justify="right" if numeric else "left")
    for place, ranked in enumerate(ranking.items, start=1):
        row = [str(place), str(ranked.index), f"{ranked.score:.4f}"]
        row += [columns[name][ranked.index] for name in fields]
        table.add_row(*map(Text, row))
    parts: list[RenderableType] = [table]
    if len(fields) < len(columns):
        hidden = ", ".join(name for name in columns if name not in fields)
        parts.append(Text(f"no room for: {hidden} (--json has them)"))
    if ranking.experts:
        parts.append(Text(f"made by experts (weight): {_listed(ranking.experts)}"))
    for task, experts in ranking.task_experts.items():
        parts.append(Text(f"{task} made by experts (weight): {_listed(experts)}"))
    return parts[0] if len(parts) == 1 else Group(*parts)


def _fitting(columns: Mapping[str, Sequence[str]], width: int | None) -> list[str]:
    """The columns that fit into the width beside rank, item and score, in their order."""
    if width is None:
        return list(columns)
    fields, left = [], width - _FIXED_WIDTH
    for name, cells in columns.items():
        needed = 3 + max(len(name), *map(len, cells))
        if needed <= left:
            fields.append(name)
            left -= needed
    return fields


def to_json(ranking: Ranking, items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The same as plain data: model, version, items best first with their scores, and the experts."""

    def experts(found: Sequence[Expert]) -> list[dict[str, Any]]:
        return [{"id": expert.id, "weight": expert.weight} for expert in found]

    ranked = []
    for place, item in enumerate(ranking.items, start=1):
        entry: dict[str, Any] = {"rank": place, "index": item.index, "score": item.score}
        if item.tasks:
            entry["tasks"] = dict(item.tasks)
        entry["item"] = dict(items[item.index])
        if item.experts:
            entry["experts"] = experts(item.experts)
        if item.task_experts:
            entry["task_experts"] = {task: experts(of) for task, of in item.task_experts.items()}
        ranked.append(entry)
    found = {
        "model": ranking.model,
        "version": ranking.version,
        "items": ranked,
        "experts": experts(ranking.experts),
    }
    if ranking.task_experts:
        found["task_experts"] = {task: experts(of) for task, of in ranking.task_experts.items()}
    return found


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
