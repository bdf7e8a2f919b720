"""The search of a sweep: processes killed after each step visit what an undisturbed search visits.

A new `Search` per step is what a kill leaves: all state is in the sweep's folder.
"""

import json
from contextlib import ExitStack

import pytest

from tfr_moe.tuning.config import make_sweep_config
from tfr_moe.tuning.search import Search
from tfr_moe.tuning.sweep_folder import Trial, TrialJob, write_trial
from tfr_moe.tuning.trial import SweepContext

RATES, WIDTHS = [0.1, 0.01, 0.001], [8, 16]
SETTINGS = {
    "grid": {},
    "random": {"max_trials": 5},
    "hyperband": {"base": {"num_epochs": 4}, "hyperband_factor": 2},
    "bayesian": {"max_trials": 5, "initial_points": 4},
}


class HyperModel:
    """Two hyper-parameters, without a data set; the rate may be continuous."""

    name = "space"
    size = len(RATES) * len(WIDTHS)

    def __init__(self, continuous):
        self.space = self
        self.continuous = continuous

    def suggest(self, hp):
        if self.continuous:
            rate = hp.Float("rate", 1e-4, 1e-1, sampling="log")
        else:
            rate = hp.Choice("rate", RATES)
        return {"rate": rate, "width": hp.Choice("width", WIDTHS)}


class Sweep:
    """A sweep's folder; each access to `search` is another process."""

    def __init__(self, folder, algorithm="grid", continuous=False, **changes):
        settings = {"space": {"rate": RATES}, "algorithm": algorithm, **SETTINGS[algorithm]}
        config = make_sweep_config({**settings, "objective": "ndcg", **changes})
        folder.mkdir(exist_ok=True)
        self.context = SweepContext(folder, config, HyperModel(continuous))

    @property
    def search(self):
        return Search(self.context)

    def state(self):
        return json.loads((self.context.path / "oracle.json").read_text())["state"]


def score(job):
    values = job.hyperparameters
    return values["rate"] + values["width"] / 1000 + job.budget.get("epochs", 0) / 10_000


def finish(sweep, killed=False, worker="worker-0@host:1"):
    """Runs what is left, in one process or with a kill after every step; returns the jobs."""
    search, jobs = sweep.search, []
    for _ in range(200):
        if killed:
            with sweep.search.next_job(worker) as lost:
                pass
            search = sweep.search
        with search.next_job(worker) as job:
            if job == "stop":
                return jobs
            if killed:
                assert (job.trial_id, job.hyperparameters) == (lost.trial_id, lost.hyperparameters)
            jobs.append((job.trial_id, job.hyperparameters, job.budget))
            search.end_job(job.trial_id, score(job))
    raise AssertionError("the search does not end")


@pytest.mark.parametrize("algorithm", SETTINGS)
def test_a_search_killed_after_every_step_visits_the_same_points(tmp_path, algorithm):
    continuous = algorithm in ("bayesian", "hyperband")
    whole = Sweep(tmp_path / "whole", algorithm, continuous)
    killed = Sweep(tmp_path / "killed", algorithm, continuous)
    expected = finish(whole)
    # With the addresses of arrays, the products of BLAS differ in their last bits, and the points
    # that a Gaussian process proposes by up to 5e-7 of their values.
    near = 1e-5 if algorithm == "bayesian" else 0.0
    for job, (trial_id, values, budget) in zip(finish(killed, True), expected, strict=True):
        assert job == (trial_id, pytest.approx(values, rel=near, abs=0.0), budget)
    assert killed.state()["end_order"] == [trial_id for trial_id, *_ in expected]


def test_a_grid_visits_each_point_once(tmp_path):
    points = [tuple(values.values()) for _, values, _ in finish(Sweep(tmp_path), killed=True)]
    assert sorted(points) == sorted((rate, width) for rate in RATES for width in WIDTHS)


@pytest.mark.parametrize(("algorithm", "limit"), [("random", 50), ("bayesian", 6)])
def test_all_points_of_a_small_space_are_visited_once(tmp_path, algorithm, limit):
    jobs = finish(Sweep(tmp_path, algorithm, max_trials=limit))
    points = [tuple(values.values()) for _, values, _ in jobs]
    assert len(points) == len(set(points)) == len(RATES) * len(WIDTHS)


def test_hyperband_continues_its_best_trials(tmp_path):
    # 4 epochs, factor 2: brackets of 1, 2 and 4 epochs to begin with.
    jobs = {trial_id: (values, budget) for trial_id, values, budget in finish(
        Sweep(tmp_path, "hyperband", continuous=True))}  # fmt: skip
    continued = [job for job in jobs.values() if "continues" in job[1]]
    assert continued
    for values, budget in continued:
        earlier_values, earlier_budget = jobs[budget["continues"]]
        assert values == earlier_values
        assert budget["initial_epoch"] == earlier_budget["epochs"]
    assert {budget["epochs"] for _, budget in jobs.values()} == {1, 2, 4}


def test_a_grid_has_work_for_all_workers_at_once_and_the_next_one_waits(tmp_path):
    sweep, points = Sweep(tmp_path), set()
    with ExitStack() as held:
        for number in range(6):
            job = held.enter_context(sweep.search.next_job(f"worker-{number}@host:1"))
            points.add(tuple(job.hyperparameters.values()))
        assert len(points) == 6
        with sweep.search.next_job("worker-7@host:1") as job:
            assert job == "wait"


def test_the_trial_of_a_dead_worker_goes_to_the_next_one_and_a_live_one_keeps_its_own(tmp_path):
    sweep = Sweep(tmp_path)
    with sweep.search.next_job("worker-1@host:1") as continued:
        with sweep.search.next_job("worker-2@host:1") as lost:
            pass
        with sweep.search.next_job("worker-3@other:1") as job:
            assert job.trial_id == lost.trial_id != continued.trial_id


def test_attempts_count_the_workers_of_one_command(tmp_path):
    sweep = Sweep(tmp_path)
    attempts = []
    for worker in ("worker-1@host:1", "worker-2@host:1", "worker-1@host:2", "worker-1@host:1"):
        with sweep.search.next_job(worker) as job:
            attempts.append(job.attempts)
    assert attempts == [1, 2, 1, 3]


def test_ending_a_trial_again_changes_nothing(tmp_path):
    sweep = Sweep(tmp_path)
    with sweep.search.next_job("worker-1@host:1") as job:
        sweep.search.end_job(job.trial_id, 0.5)
        before = (tmp_path / "oracle.json").read_text()
        line = sweep.search.end_job(job.trial_id, 0.7)
    assert (tmp_path / "oracle.json").read_text() == before
    assert line == "1 of at most 6 trials; best ndcg 0.5000 (trial 0000)"


def test_a_trial_whose_record_is_gone_runs_again_and_nothing_else_does(tmp_path):
    sweep = Sweep(tmp_path)
    jobs = finish(sweep)
    for trial_id, values, _ in jobs:
        if trial_id != "0002":
            write_trial(tmp_path, Trial(trial_id, values, [], 0.5, None))
    assert sweep.search.reopen_unrecorded() == ["0002"]
    assert finish(sweep) == [jobs[2]]
    assert sorted(sweep.state()["end_order"]) == [trial_id for trial_id, *_ in jobs]


def test_failures_in_a_row_stop_the_search_and_a_success_resets_the_count(tmp_path):
    sweep = Sweep(tmp_path, max_failures=2)
    search = sweep.search
    for failed in (True, False, True, True):
        assert search.failures() == []
        with search.next_job("worker-1@host:1") as job:
            search.end_job(job.trial_id, None if failed else 0.5)
    assert search.failures() == ["0002", "0003"]
    with search.next_job("worker-1@host:1") as job:
        assert job == "stop"
    with sweep.search.next_job("worker-1@host:2") as job:
        assert isinstance(job, TrialJob)


def test_failures_in_a_row_do_not_stop_a_search_that_is_complete(tmp_path):
    sweep = Sweep(tmp_path, max_failures=2)
    search = sweep.search
    trials = 0
    while True:
        with search.next_job(f"worker-1@host:{trials}") as job:
            if job == "stop":
                break
            trials += 1
            # All but the last two of the grid of 6 points have a result.
            search.end_job(job.trial_id, None if trials > 4 else 0.5)
    assert trials == 6
    assert search.failures() == []


def test_a_score_that_is_not_a_number_fails_the_trial(tmp_path):
    search = Sweep(tmp_path, max_failures=1).search
    with search.next_job("worker-1@host:1") as job:
        search.end_job(job.trial_id, float("nan"))
    assert search.failures() == ["0000"]


def test_the_state_is_one_file_that_is_never_half_written(tmp_path, monkeypatch):
    sweep = Sweep(tmp_path)
    with sweep.search.next_job("worker-1@host:1"):
        pass
    before = sweep.state()

    def killed(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("tfr_moe.utils.io.os.replace", killed)
        with pytest.raises(KeyboardInterrupt):
            sweep.search.end_job("0000", 0.5)
    assert sweep.state() == before
    assert before["start_order"] == ["0000"]


def test_kerastuner_writes_no_files_of_its_own_into_the_sweep(tmp_path):
    finish(Sweep(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "oracle.json", "work"]
