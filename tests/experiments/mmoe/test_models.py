"""The paper's models with the same number of parameters."""

import pytest

from experiments.mmoe.models import match_budget, parameter_count
from tfr_moe._compat import tf
from tfr_moe.layers import MULTITASK

every_model = pytest.mark.parametrize("name", MULTITASK)


@every_model
def test_parameters_are_counted_as_those_of_the_built_layer(name):
    sizes = {"hidden_dims": [5, 4], "tower_hidden_dims": [3]}
    layer = MULTITASK[name](3, **sizes)
    layer(tf.zeros([1, 6]))
    built = sum(int(tf.size(weight)) for weight in layer.trainable_weights)
    assert parameter_count(name, 6, 3, **sizes) == built


@every_model
def test_budgets_are_met_within_one_unit_of_width(name):
    budget = 20_000
    settings = match_budget(name, budget, 100, 2, hidden_dims=[32, 16], tower_hidden_dims=[8])
    count = parameter_count(name, 100, 2, **settings)
    wider = [width + 1 for width in settings["hidden_dims"]]
    step = parameter_count(name, 100, 2, **{**settings, "hidden_dims": wider}) - count
    assert abs(count - budget) <= step
