"""Renders an answer as a ranked table with its experts, or as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from tfr_moe.utils.console import Column, fitted_table

from .ranking import Expert, Ranking


def render(
    ranking: Ranking, items: Sequence[Mapping[str, Any]], width: int | None = None
) -> RenderableType:
    """A table of rank, score and the fields of each item, best first; below it the experts.

    Fields that do not fit into `width` columns are listed below; None shows all.
    """
    ranked = ranking.items
    columns = [
        Column("rank", [str(rank) for rank in range(1, len(ranked) + 1)]),
        Column("item", [str(item.index) for item in ranked]),
        Column("score", [f"{item.score:.4f}" for item in ranked]),
    ]
    always = len(columns)
    for task in ranked[0].tasks if ranked else ():
        columns.append(Column(f"{task} score", [f"{item.tasks[task]:.4f}" for item in ranked]))
    for name in dict.fromkeys(name for item in items for name in item):
        values = [items[item.index].get(name) for item in ranked]
        numeric = all(value is None or isinstance(value, (int, float)) for value in values)
        columns.append(Column(name, list(map(_text, values)), numeric))
    if any(item.experts for item in ranked):
        experts = [_expert_list(item.experts) for item in ranked]
        columns.append(Column("experts (weight)", experts, numeric=False))
    title = f"{ranking.model} version {ranking.version}"
    parts: list[RenderableType] = [fitted_table(columns, always, width, title)]
    if ranking.experts:
        parts.append(Text(f"experts (weight): {_expert_list(ranking.experts)}"))
    for task, of_task in ranking.task_experts.items():
        parts.append(Text(f"{task} experts (weight): {_expert_list(of_task)}"))
    return parts[0] if len(parts) == 1 else Group(*parts)


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
