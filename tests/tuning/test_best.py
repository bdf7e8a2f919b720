"""The best configuration: a file that training takes."""

import pytest

from tests.tuning.sweeps import failed, gate_trials, lambda_trials, trial, write_sweep
from tfr_moe.config import load_config
from tfr_moe.errors import UserError
from tfr_moe.tuning.results import best_config, summarize_sweep, write_best


def test_best_yaml_is_base_and_the_best_trial_under_its_first_seed(tmp_path):
    path = write_sweep(tmp_path / "s", lambda_trials())
    config = load_config(write_best(summarize_sweep(path)))
    assert (config.hsc.hsc_weight, config.adversarial.adversarial_weight) == (0.001, 0.001)
    assert (config.experts.expert_hidden_dims, config.training.num_epochs, config.seed) == (
        (16, 8),
        3,
        1,
    )
    assert sorted(p.name for p in path.iterdir()) == ["best.yaml", "sweep.yaml", "trials"]


def test_labels_become_their_settings(tmp_path):
    summary = summarize_sweep(write_sweep(tmp_path / "s", gate_trials()))
    assert best_config(summary).gate.gate_features == ("sub",)


def test_without_a_result_there_is_no_best(tmp_path):
    summary = summarize_sweep(write_sweep(tmp_path / "s", [failed("0", {"a": 1}, "no")]))
    with pytest.raises(UserError, match="no trial has a result yet"):
        best_config(summary)


def test_settings_that_no_longer_fit_are_named(tmp_path):
    trials = [trial("0", {"tower_width": 3}, [0.7])]
    summary = summarize_sweep(write_sweep(tmp_path / "s", trials))
    with pytest.raises(UserError, match=r"trial 0 of .*unknown key 'tower_width'"):
        best_config(summary)
