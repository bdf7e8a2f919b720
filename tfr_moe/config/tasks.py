"""Tasks: the labels that one model learns together, and the settings of each.

tasks:
  click: {metrics: [session_auc]}
  purchase: {conditioned_on: click, weight: 2.0, score_weight: 10.0}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
        conditioned_on: a task that this one presupposes, as a purchase does a click: the task's
            tower then gives the probability of this event after that one, and its score is their
            product.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    loss: str | None = None
    weight: float = Field(1.0, ge=0)
    metrics: tuple[str, ...] | None = None
    score_weight: float = Field(1.0, ge=0)
    conditioned_on: str | None = None


class Task(TaskSettings):
    """A task of a run: its settings, and those of the run where it has none."""

    name: str
    loss: str
    metrics: tuple[str, ...]


def resolve_tasks(
    settings: Mapping[str, TaskSettings] | None,
    schema: FeatureSchema,
    loss: str,
    metrics: Sequence[str],
) -> tuple[Task, ...]:
    """The tasks of a run over data of that schema, in the order of the settings.

    Without settings these are all labels of the schema, with the loss and metrics of the run; none
    at all where it has a single label, for which there is one score.
    """
    if settings is None:
        if len(schema.labels) == 1:
            return ()
        settings = {label: TaskSettings.model_validate({}) for label in schema.labels}
    for name in settings:
        if name not in schema.labels:
            raise UserError(
                f"tasks: {name!r} is not a label of the data; allowed: {', '.join(schema.labels)}"
            )
    return tuple(
        Task(
            name=name,
            **{
                **task.model_dump(),
                "loss": task.loss or loss,
                "metrics": tuple(metrics if task.metrics is None else task.metrics),
            },
        )
        for name, task in settings.items()
    )


def check_conditions(conditioned_on: Mapping[str, str | None]) -> None:
    """Rejects tasks that are conditioned on a missing task, or on each other.

    `conditioned_on` has for each task the one that it presupposes, or None.
    """
    for name in conditioned_on:
        seen = [name]
        while (before := conditioned_on[seen[-1]]) is not None:
            if before not in conditioned_on:
                raise ValueError(
                    f"tasks.{seen[-1]}.conditioned_on: {before!r} is not a task; allowed: "
                    f"{', '.join(conditioned_on)}"
                )
            if before in seen:
                raise ValueError(f"tasks.{name}.conditioned_on: forms a cycle with {before!r}")
            seen.append(before)
