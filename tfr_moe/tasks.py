"""Tasks: the labels that one model learns together, and what is asked of each.

tasks:
  click: {metrics: [session_auc]}
  purchase: {given: click, weight: 2.0, score_weight: 10.0}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema


class TaskSettings(BaseModel):
    """The settings of one task; its name is that of its label.

    Attributes:
        loss: a name from `tfr_moe.losses.names()`; None takes the run's.
        weight: of the task's loss in the sum over the tasks.
        metrics: metrics of the validation data; None takes the run's.
        score_weight: of the task in the combined score that is served.
        given: a task that this one presupposes, as a purchase does a click: the task's tower then
            gives the probability of this event after that one, and its score is their product.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    loss: str | None = None
    weight: float = Field(1.0, ge=0)
    metrics: tuple[str, ...] | None = None
    score_weight: float = Field(1.0, ge=0)
    given: str | None = None


class Task(NamedTuple):
    """A task of a run, with nothing left to default. See `TaskSettings`."""

    name: str
    loss: str
    weight: float
    metrics: tuple[str, ...]
    score_weight: float
    given: str | None


def resolve_tasks(
    settings: Mapping[str, TaskSettings] | None,
    schema: FeatureSchema,
    loss: str,
    metrics: Sequence[str],
) -> tuple[Task, ...]:
    """The tasks of a run over data of that schema, in the order of the settings.

    Args:
        settings: by label; None takes all labels of the schema.
        schema: names the labels.
        loss: of tasks without one of their own.
        metrics: of tasks without their own.

    Returns:
        The tasks; none at all where the schema has a single label, for which there is one score.

    Raises:
        UserError: for a task that is no label.

    Example:
        >>> schema = FeatureSchema(
        ...     list_id="query",
        ...     labels=["purchase", "click"],
        ...     features=[{"name": "price", "scope": "example", "kind": "numeric"}],
        ... )
        >>> [task.name for task in resolve_tasks(None, schema, "ordinal_loss", ["ndcg"])]
        ['purchase', 'click']
    """
    if settings is None:
        if len(schema.labels) == 1:
            return ()
        settings = {label: TaskSettings.model_validate({}) for label in schema.labels}
    for name in settings:
        if name not in schema.labels:
            raise UserError(
                f"tasks: {name!r} is not a label of the data; there are: {', '.join(schema.labels)}"
            )
    return tuple(
        Task(
            name,
            own.loss or loss,
            own.weight,
            tuple(metrics if own.metrics is None else own.metrics),
            own.score_weight,
            own.given,
        )
        for name, own in settings.items()
    )


def check_given(given: Mapping[str, str | None], graded: Sequence[str] = ()) -> None:
    """Refuses tasks that presuppose what is no task or has no probability, or each other in a circle.

    Args:
        given: per task the task that it presupposes, or None.
        graded: tasks with an output for each grade, which are no events with a probability.

    Raises:
        ValueError: naming the task.

    Example:
        >>> check_given({"click": None, "purchase": "click"})
    """
    for name in given:
        seen = [name]
        while (before := given[seen[-1]]) is not None:
            if before not in given:
                raise ValueError(
                    f"tasks.{seen[-1]}.given: {before!r} is not a task; there are: "
                    f"{', '.join(given)}"
                )
            if before in seen:
                raise ValueError(f"tasks.{name}.given: leads back to {before!r}")
            for task in (seen[-1], before):
                if task in graded:
                    raise ValueError(
                        f"tasks.{seen[-1]}.given: {task!r} has loss ordinal, whose grades have no "
                        "probability to multiply"
                    )
            seen.append(before)


def metric_of(monitor: str, tasks: Sequence[Task]) -> str:
    """The metric in the name of a monitored value: `click_ndcg` -> `ndcg` where click is a task.

    Raises:
        UserError: for what is shown neither of a task nor as a mean over tasks.
    """
    shown: dict[str, str] = {m: m for task in tasks for m in task.metrics}
    shown |= {f"{task.name}_{m}": m for task in tasks for m in task.metrics}
    if monitor not in shown:
        raise UserError(f"monitor must be loss or one of {', '.join(shown)}, got {monitor!r}")
    return shown[monitor]


def settings_of_names(value: Any) -> Any:
    """Lets a plain list of names stand for tasks with nothing but defaults."""
    if isinstance(value, (list, tuple)) and all(isinstance(name, str) for name in value):
        return {name: {} for name in value}
    return value
