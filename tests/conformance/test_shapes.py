"""Losses and metrics reject labels, scores and weights of unlike shapes in one sentence."""

import numpy as np
import pytest

from tests.conformance import registry
from tests.conformance.arrays import draw
from tfr_moe._compat import tf

JUDGED = [case for case in registry.METRICS if "y_true" in case.inputs]
OF_ONE_OUTPUT = [case for case in registry.LOSSES if case.inputs["y_pred"].width is None]


def labels_and_scores(case):
    values = draw(case.inputs)
    return values["y_true"], values["y_pred"]


@pytest.mark.parametrize("case", [*registry.LOSSES, *JUDGED], ids=registry.by_name)
def test_unlike_shapes_are_named(case):
    labels, scores = labels_and_scores(case)
    wanted = r"y_true must have shape \[batch, list\] and y_pred the same"
    for wrong in (labels[:, :3], labels[:1], labels[..., np.newaxis], labels[0]):
        with pytest.raises(ValueError, match=wanted):
            case.make()(wrong, scores)
    with pytest.raises(ValueError, match=r"sample_weight must have shape \(6,\) or \(6, 1\) or"):
        case.make()(labels, scores, sample_weight=np.ones([6, 3], np.float32))
    with pytest.raises(ValueError, match="lists must be padded to one length"):
        case.make()(tf.ragged.constant([[1.0], [0.0, 1.0]]), scores)


@pytest.mark.parametrize("case", OF_ONE_OUTPUT, ids=registry.by_name)
def test_scores_with_a_last_axis_of_one_are_named(case):
    labels, scores = labels_and_scores(case)
    with pytest.raises(ValueError, match=r"y_pred of shape \(6, 5, 1\)"):
        case.make()(labels, scores[..., np.newaxis])
