"""The best configuration: a file that training takes, and runs of it with seeds of their own."""

import json

import pytest
from rich.console import Console

from tests.tiny import SMALL, write_data_folder
from tests.tuning.sweeps import failed, gate_trials, lambda_trials, trial, write_sweep
from tfr_moe.config import load_config
from tfr_moe.errors import UserError
from tfr_moe.tuning.results import best_config, summarize_sweep, write_best
from tfr_moe.tuning.retraining import retrain, unused_seeds


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


def test_unused_seeds_begin_after_all_that_were_used(tmp_path):
    trials = [trial("0", {"top_k": 2}, [0.7, 0.8, 0.9]), trial("1", {"top_k": 4}, [0.7])]
    assert unused_seeds(summarize_sweep(write_sweep(tmp_path / "s", trials)), 2) == [4, 5]


def test_no_seed_is_rejected(tmp_path):
    with pytest.raises(UserError, match="Received: seeds=0"):
        retrain(write_sweep(tmp_path / "s", lambda_trials()), 0)


def test_retraining_needs_no_test_split_and_keeps_what_is_finished(tmp_path):
    data = write_data_folder(tmp_path / "data", train=64, validation=30)
    for path in data.glob("test-*"):
        path.unlink()
    settings = {**SMALL, "expert_hidden_dims": [8], "num_epochs": 1}
    trials = [trial("7", {"top_k": 2}, [0.7, 0.8], settings={**settings, "top_k": 2})]
    sweep = write_sweep(tmp_path / "s", trials, data=data)
    console = Console(quiet=True)
    runs = retrain(sweep, 1, console)
    assert [str(run.relative_to(sweep)) for run in runs] == ["retrained/7/seed-3"]
    assert load_config(runs[0] / "config.yaml").seed == 3
    written = (runs[0] / "metrics.json").stat().st_mtime_ns
    assert retrain(sweep, 1, console) == runs
    assert (runs[0] / "metrics.json").stat().st_mtime_ns == written
    assert "val_session_auc" in json.loads((runs[0] / "metrics.json").read_text())["best"]


def test_the_best_of_another_data_set_is_not_retrained(tmp_path):
    data = write_data_folder(tmp_path / "data", train=8, validation=8)
    sweep = write_sweep(tmp_path / "s", [trial("0", {"top_k": 2}, [0.7])], data=data)
    (data / "statistics.json").write_text((data / "statistics.json").read_text() + " ")
    with pytest.raises(UserError, match="was started with another data set"):
        retrain(sweep, 1, Console(quiet=True))
    assert not (sweep / "retrained").exists()
