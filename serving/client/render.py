"""Renders an answer as a ranked table with its experts, or as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from .ranking import Expert, Ranking

_FIXED_WIDTH = 24  # rank, item and score with their borders


def render(
    ranking: Ranking, items: Sequence[Mapping[str, Any]], width: int | None = None
) -> RenderableType:
    """A table of rank, score and the fields of each item, best first; below it the experts.

    Args:
        ranking: the answer.
        items: the items of the request, in its order.
        width: columns of the terminal; fields that do not fit are listed below. None shows all.

    Returns:
        A `rich` renderable.
    """
    named = dict.fromkeys(name for item in items for name in item)
    columns = {name: [_text(item.get(name)) for item in items] for name in named}
    tasks = {f"{task} score": task for task in (ranking.items[0].tasks if ranking.items else ())}
    columns = {**{title: [""] * len(items) for title in tasks}, **columns}
    for ranked in ranking.items:
        for title, task in tasks.items():
            columns[title][ranked.index] = f"{ranked.tasks[task]:.4f}"
    item_level = any(item.experts for item in ranking.items)
    if item_level:
        columns["experts (weight)"] = [""] * len(items)
        for ranked in ranking.items:
            columns["experts (weight)"][ranked.index] = _expert_list(ranked.experts)
    fields = _fitting(columns, width)
    table = Table(title=f"{ranking.model} version {ranking.version}", title_justify="left")
    for name in ("rank", "item", "score"):
        table.add_column(name, justify="right")
    for name in fields:
        numeric = name in tasks or all(
            isinstance(item.get(name, ""), (int, float)) for item in items
        )
        table.add_column(Text(name), justify="right" if numeric else "left")
    for position, ranked in enumerate(ranking.items, start=1):
        row = [str(position), str(ranked.index), f"{ranked.score:.4f}"]
        row += [columns[name][ranked.index] for name in fields]
        table.add_row(*map(Text, row))
    parts: list[RenderableType] = [table]
    if len(fields) < len(columns):
        hidden = ", ".join(name for name in columns if name not in fields)
        parts.append(Text(f"hidden columns: {hidden} (use --json)"))
    if ranking.experts:
        parts.append(Text(f"experts (weight): {_expert_list(ranking.experts)}"))
    for task, experts in ranking.task_experts.items():
        parts.append(Text(f"{task} experts (weight): {_expert_list(experts)}"))
    return parts[0] if len(parts) == 1 else Group(*parts)


def _fitting(columns: Mapping[str, Sequence[str]], width: int | None) -> list[str]:
    """The columns that fit beside rank, item and score, in their order."""
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
    """The answer as plain data: model, version, items best first with their scores, and experts."""

    def as_json(experts: Sequence[Expert]) -> list[dict[str, Any]]:
        return [expert._asdict() for expert in experts]

    def by_task(task_experts: Mapping[str, Sequence[Expert]]) -> dict[str, Any]:
        return {task: as_json(experts) for task, experts in task_experts.items()}

    ranked = []
    for position, item in enumerate(ranking.items, start=1):
        entry: dict[str, Any] = {"rank": position, "index": item.index, "score": item.score}
        if item.tasks:
            entry["tasks"] = dict(item.tasks)
        entry["item"] = dict(items[item.index])
        if item.experts:
            entry["experts"] = as_json(item.experts)
        if item.task_experts:
            entry["task_experts"] = by_task(item.task_experts)
        ranked.append(entry)
    data = {
        "model": ranking.model,
        "version": ranking.version,
        "items": ranked,
        "experts": as_json(ranking.experts),
    }
    if ranking.task_experts:
        data["task_experts"] = by_task(ranking.task_experts)
    return data


def _expert_list(experts: Sequence[Expert]) -> str:
    return ", ".join(f"{expert.id} ({expert.weight:.2f})" for expert in experts)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (list, tuple)):
        return " ".join(_text(part) for part in value)
    return str(value)
