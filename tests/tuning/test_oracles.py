"""Search algorithms that are killed after each step visit what an undisturbed search visits."""

import json

import pytest

from tfr_moe.tuning import keras_tuner as kt
from tfr_moe.tuning.config import make_sweep_config
from tfr_moe.tuning.oracles import make_oracle

STATUS = kt.engine.trial.TrialStatus
RATES, WIDTHS = [0.1, 0.01, 0.001], [8, 16]
SETTINGS = {
    "grid": {},
    "random": {"max_trials": 5},
    "hyperband": {"base": {"num_epochs": 4}, "hyperband_factor": 2},
    "bayesian": {"max_trials": 5, "initial_points": 4},
}


def space(hp, continuous):
    if continuous:
        hp.Float("rate", 1e-4, 1e-1, sampling="log")
    else:
        hp.Choice("rate", RATES)
    hp.Choice("width", WIDTHS)
    return hp


def new_oracle(folder, algorithm, **changes):
    settings = {"space": "lambda_grid", "algorithm": algorithm, "objective": {
        "name": "ndcg", "direction": "max"}, **SETTINGS[algorithm], **changes}  # fmt: skip
    oracle = make_oracle(make_sweep_config(settings), folder)
    oracle.update_space(space(kt.HyperParameters(), algorithm in ("bayesian", "hyperband")))
    return oracle


def score(trial):
    values = trial.hyperparameters.values
    return values["rate"] + values["width"] / 1000 + values.get("tuner/epochs", 0) / 10_000


def reopened(oracle, folder, algorithm):
    """What the same command finds after a kill."""
    again = new_oracle(folder, algorithm)
    if (folder / "oracle.json").is_file():
        again.reload()
    return again


def search(folder, algorithm, kill_after=()):
    """Runs a search; after each step named in `kill_after` the oracle is lost and read anew."""
    oracle, visited = new_oracle(folder, algorithm), []
    for _ in range(200):
        trial = oracle.create_trial("tuner0")
        if trial.status == STATUS.STOPPED:
            return visited, oracle
        if "create" in kill_after:
            oracle = reopened(oracle, folder, algorithm)
            trial, lost = oracle.create_trial("tuner0"), trial
            assert trial.trial_id == lost.trial_id
            assert trial.hyperparameters.values == lost.hyperparameters.values
        visited.append((trial.trial_id, dict(trial.hyperparameters.values)))
        oracle.update_trial(trial.trial_id, {"ndcg": score(trial)})
        trial.status = STATUS.COMPLETED
        oracle.end_trial(trial)
        if "end" in kill_after:
            oracle = reopened(oracle, folder, algorithm)
    raise AssertionError("the search does not end")


@pytest.mark.parametrize("algorithm", SETTINGS)
def test_a_search_killed_after_every_step_visits_the_same_points(tmp_path, algorithm):
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    expected, _ = search(tmp_path / "whole", algorithm)
    found, oracle = search(tmp_path / "killed", algorithm, kill_after=("create", "end"))
    assert found == expected
    assert oracle.end_order == [trial_id for trial_id, _ in expected]


def test_a_grid_visits_each_point_once(tmp_path):
    visited, _ = search(tmp_path, "grid", ("create", "end"))
    points = [(values["rate"], values["width"]) for _, values in visited]
    assert sorted(points) == sorted((rate, width) for rate in RATES for width in WIDTHS)


def test_a_random_search_finds_every_point_of_a_small_grid(tmp_path):
    oracle, points = new_oracle(tmp_path, "random", max_trials=50), set()
    while (trial := oracle.create_trial("tuner0")).status != STATUS.STOPPED:
        points.add(tuple(trial.hyperparameters.values.values()))
        oracle.update_trial(trial.trial_id, {"ndcg": 0.5})
        trial.status = STATUS.COMPLETED
        oracle.end_trial(trial)
    assert len(points) == len(oracle.trials) == len(RATES) * len(WIDTHS)


def test_a_bayesian_search_of_a_small_grid_never_repeats_a_point(tmp_path):
    oracle = new_oracle(tmp_path, "bayesian", max_trials=6)
    oracle.hyperparameters = space(kt.HyperParameters(), False)
    points = []
    while (trial := oracle.create_trial("tuner0")).status != STATUS.STOPPED:
        points.append(tuple(trial.hyperparameters.values.values()))
        oracle.update_trial(trial.trial_id, {"ndcg": score(trial)})
        trial.status = STATUS.COMPLETED
        oracle.end_trial(trial)
    assert len(points) == len(set(points)) == 6


def test_a_grid_has_work_for_all_workers_at_once(tmp_path):
    oracle = new_oracle(tmp_path, "grid")
    trials = [oracle.create_trial(f"worker-{n}") for n in range(6)]
    assert [trial.status for trial in trials] == [STATUS.RUNNING] * 6
    assert oracle.create_trial("worker-7").status == STATUS.IDLE


def test_hyperband_goes_on_with_its_best_trials(tmp_path):
    # 4 epochs, factor 2: brackets of 1, 2 and 4 epochs to begin with.
    visited, _ = search(tmp_path, "hyperband")
    by_id = dict(visited)
    goes_on = [values for values in by_id.values() if "tuner/trial_id" in values]
    assert goes_on
    for values in goes_on:
        before = by_id[values["tuner/trial_id"]]
        assert values["rate"] == before["rate"]
        assert values["tuner/initial_epoch"] == before["tuner/epochs"]
    assert {values["tuner/epochs"] for values in by_id.values()} == {1, 2, 4}


def test_the_trial_of_a_worker_that_is_gone_goes_to_the_next_one(tmp_path):
    oracle = new_oracle(tmp_path, "grid")
    lost, other = oracle.create_trial("worker-1"), oracle.create_trial("worker-2")
    assert oracle.release("worker-1") == lost.trial_id
    assert oracle.release("worker-1") is None
    other.status = STATUS.COMPLETED
    oracle.update_trial(other.trial_id, {"ndcg": 0.5})
    oracle.end_trial(other)
    assert oracle.create_trial("worker-2").trial_id == lost.trial_id


def test_a_worker_that_comes_back_in_time_keeps_its_trial(tmp_path):
    oracle = new_oracle(tmp_path, "grid")
    trial = oracle.create_trial("worker-1")
    oracle.release("worker-1")
    assert oracle.reclaim("worker-1", trial.trial_id)
    assert oracle.create_trial("worker-2").trial_id != trial.trial_id
    assert not oracle.reclaim("worker-2", trial.trial_id)


def test_workers_of_a_killed_chief_keep_their_trials(tmp_path):
    oracle = new_oracle(tmp_path, "grid")
    first = oracle.create_trial("worker-1")
    again = new_oracle(tmp_path, "grid")
    again.reload(keep_ongoing=True)
    assert again.create_trial("worker-2").trial_id != first.trial_id
    assert again.create_trial("worker-1").trial_id == first.trial_id


def test_a_second_end_of_a_trial_changes_nothing(tmp_path):
    oracle = new_oracle(tmp_path, "grid")
    trial = oracle.create_trial("tuner0")
    oracle.update_trial(trial.trial_id, {"ndcg": 0.5})
    trial.status = STATUS.COMPLETED
    oracle.end_trial(trial)
    before = (tmp_path / "oracle.json").read_text()
    oracle.end_trial(trial)
    assert (tmp_path / "oracle.json").read_text() == before


def test_a_trial_whose_record_is_gone_runs_again_and_nothing_else_does(tmp_path):
    visited, oracle = search(tmp_path, "grid")
    oracle.reopen("0002")
    oracle = reopened(oracle, tmp_path, "grid")
    trial = oracle.create_trial("tuner0")
    assert (trial.trial_id, dict(trial.hyperparameters.values)) == visited[2]
    oracle.update_trial(trial.trial_id, {"ndcg": 0.5})
    trial.status = STATUS.COMPLETED
    oracle.end_trial(trial)
    assert oracle.create_trial("tuner0").status == STATUS.STOPPED
    assert len(oracle.end_order) == len(RATES) * len(WIDTHS)


def test_failures_in_a_row_stop_the_search_and_a_success_counts_anew(tmp_path):
    oracle = new_oracle(tmp_path, "grid", max_failures=2)
    for failed in (True, False, True, True):
        assert not oracle.gave_up
        trial = oracle.create_trial("tuner0")
        trial.status = STATUS.FAILED if failed else STATUS.COMPLETED
        oracle.update_trial(trial.trial_id, {"ndcg": 0.5})
        oracle.end_trial(trial)
    assert oracle.gave_up
    assert oracle.create_trial("tuner0").status == STATUS.STOPPED
    again = reopened(oracle, tmp_path, "grid")
    assert again.create_trial("tuner0").status == STATUS.RUNNING


def test_the_state_is_one_file_that_is_never_half_written(tmp_path, monkeypatch):
    oracle = new_oracle(tmp_path, "grid")
    oracle.create_trial("tuner0")
    before = json.loads((tmp_path / "oracle.json").read_text())

    def killed(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("tfr_moe.folders.os.replace", killed)
    with pytest.raises(KeyboardInterrupt):
        oracle.create_trial("worker-2")
    assert json.loads((tmp_path / "oracle.json").read_text()) == before
    assert list(before["trials"]) == ["0000"]
