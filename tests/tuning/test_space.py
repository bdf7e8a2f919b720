"""Search spaces: values, ranges, and error messages."""

import itertools

import pytest

from tfr_moe.config import RunConfig, make_config
from tfr_moe.errors import UserError
from tfr_moe.tuning import keras_tuner as kt
from tfr_moe.tuning.space import make_space


def points(space):
    """The settings of every point of a space of choices."""
    result = []
    for values in itertools.product(*space.choices.values()):
        hp = kt.HyperParameters()
        space.suggest(hp)
        hp.values = dict(zip(space.choices, values, strict=True))
        result.append(space.suggest(hp))
    return result


def test_only_valid_numbers_of_experts_are_in_the_space():
    parameters = {"num_experts": [4, 6], "top_k": [2, 4], "num_adversarial": [1, 3]}
    actual = {tuple(settings.values()) for settings in points(make_space(parameters, RunConfig()))}
    # 4 experts, 2 active: at most 2 idle ones; 4 of 4 active: none; 6 - 4 = 2.
    assert actual == {(4, 2, 1), (6, 2, 1), (6, 2, 3), (6, 4, 1)}


def test_a_custom_space_has_choices_and_ranges():
    space = make_space(
        {
            "learning_rate": {"min": "1e-4", "max": 0.01, "sampling": "log"},
            "embedding_dim": {"min": 4, "max": 16, "step": 4},
            "expert_hidden_dims": [[64, 32], [16]],
            "hsc_weight": ["1e-3", 1],
            "clip_norm": [None, 1.0],
            "noisy_gate": [True, False],
        },
        RunConfig(),
    )
    hp = kt.HyperParameters()
    settings = space.suggest(hp)
    assert {type(each).__name__: each.name for each in hp.space}["Float"] == "learning_rate"
    assert settings == {
        "learning_rate": 1e-4,
        "embedding_dim": 4,
        "expert_hidden_dims": [64, 32],
        "hsc_weight": 0.001,
        "clip_norm": None,
        "noisy_gate": True,
    }
    assert space.size is None


REJECTED = {
    "an unknown setting": ({"top_kk": [1]}, r"unknown setting 'top_kk'; did you mean 'top_k'\?"),
    "the budget": ({"num_epochs": [1, 2]}, "num_epochs must be the same in all trials"),
    "a seed": ({"seed": [1, 2]}, "seed must be the same in all trials"),
    "no values": ({"top_k": []}, "top_k: must be a list of values or a range"),
    "a single value": ({"top_k": 3}, "top_k: must be a list of values or a range. Received: 3"),
    "a wrong value": ({"top_k": ["two"]}, "top_k: .*integer.*Received: 'two'"),
    "a value out of range": ({"hsc_weight": [-1]}, "hsc_weight: .*greater than or equal to 0"),
    "too many experts": ({"top_k": [2, 40]}, "top_k must be <= num_experts = 20, got 40"),
    "the same twice": ({"hsc_weight": [0.1, "1e-1"]}, "values must differ"),
    "a bad range": ({"hsc_weight": {"min": 1, "max": 0}}, "min must be < max, got 1 and 0"),
    "a range without an end": (
        {"hsc_weight": {"min": 0, "max": float("inf")}},
        "hsc_weight: max: Input should be a finite number",
    ),
    "an unknown model": ({"model": ["moe", "moee"]}, "model 'moee'"),
    "a log of 0": (
        {"hsc_weight": {"min": 0, "max": 1, "sampling": "log"}},
        "min must be > 0 for log sampling",
    ),
    "an unknown key": ({"hsc_weight": {"min": 0, "top": 1}}, "hsc_weight: .*top: unknown key"),
    "a range of words": ({"loss": {"min": 0, "max": 1}}, "loss: .*Received: 0"),
    "half a step": ({"top_k": {"min": 1, "max": 4, "step": 0.5}}, "step must be a whole number"),
    "nothing": ({}, "space: is empty"),
    "a function": ({"function": "mine.py:space"}, "unknown setting 'function'"),
}


@pytest.mark.parametrize("case", REJECTED)
def test_is_rejected(case):
    description, words = REJECTED[case]
    with pytest.raises(UserError, match=words) as error:
        make_space(description, RunConfig())
    assert "\n" not in str(error.value)


def test_a_setting_that_the_model_does_not_have_is_rejected():
    with pytest.raises(
        UserError, match="hsc_weight: model 'dnn' does not have it; models that do: hsc_m"
    ):
        make_space({"hsc_weight": [0.1]}, make_config({"model": "dnn"}))
    varied = {"model": ["dnn", "hsc_moe"], "hsc_weight": [0.1, 0.2]}
    assert make_space(varied, make_config({"model": "dnn"})).size == 4


def test_a_batch_size_that_changes_the_budget_is_rejected():
    space = {"batch_size": [16, 32]}
    assert make_space(space, RunConfig()).size == 2
    with pytest.raises(UserError, match="batch_size cannot vary while base"):
        make_space(space, make_config({"steps_per_epoch": 10}))
