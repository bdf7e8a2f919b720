"""The highest grade of the labels, which the losses `rmse` and `ordinal` need before training begins."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tfr_moe import losses
from tfr_moe._compat import tf
from tfr_moe.config import RunConfig
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.errors import UserError


def graded_labels(folder: DataFolder, config: RunConfig) -> list[str]:
    """The labels whose highest grade a run has to know."""
    tasks = config.tasks_over(folder.schema)
    if not tasks:
        return [folder.schema.label] if config.loss in losses.GRADED else []
    return [task.name for task in tasks if task.loss in losses.GRADED]


def highest_label(folder: DataFolder, labels: Sequence[str]) -> int:
    """The highest grade in the training lists, a fraction rounded up; one pass over the files.

    Raises:
        UserError: where no item is relevant at all.
    """
    highest = tf.constant(0.0)
    for parsed in ElwcDatasetBuilder(folder, batch_size=1024).build_parsed_dataset("train"):
        for label in labels:
            highest = tf.maximum(highest, tf.reduce_max(parsed[label]))
    found = math.ceil(float(highest))
    if found < 1:
        raise UserError(
            f"data {folder.path}: no training item has a label {' or '.join(labels)} above 0"
        )
    return found


def with_max_label(folder: DataFolder, config: RunConfig) -> RunConfig:
    """The settings with `max_label` from the training data, where the loss needs it and none is given.

    Raises:
        UserError: where no item is relevant at all.
    """
    labels = graded_labels(folder, config)
    if not labels or config.max_label is not None:
        return config
    return config.model_copy(update={"max_label": highest_label(folder, labels)})
