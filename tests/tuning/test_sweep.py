"""Sweeps on a small data set without a test split: what is trained, recorded, resumed and refused."""

import os

import pytest
from rich.console import Console

from tests.tiny import SMALL, write_data_folder
from tfr_moe.cli import main
from tfr_moe.config import MODEL_NAMES, make_config
from tfr_moe.data import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.tuning import keras_tuner as kt
from tfr_moe.tuning.config import make_sweep_config
from tfr_moe.tuning.hypermodel import RankingHyperModel
from tfr_moe.tuning.plan import Plan
from tfr_moe.tuning.records import load_trials, trial_file
from tfr_moe.tuning.sweep import resolve, tune
from tfr_moe.tuning.trial import Job, run_job

BASE = {**SMALL, "model": "dnn", "expert_hidden_dims": [8], "num_epochs": 2}
QUIET = Console(quiet=True)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = write_data_folder(tmp_path_factory.mktemp("tuning") / "data", train=64, validation=20)
    for file in path.glob("test-*"):
        file.unlink()
    return path


def config(**changes):
    return make_sweep_config({"base": BASE, "space": {"learning_rate": [0.01, 0.001]}, **changes})


@pytest.fixture(scope="module")
def swept(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("sweeps") / "grid"
    return out, tune(data, out, config(seeds=2), QUIET)


def stamps(out):
    return {path.parent.name: path.stat().st_mtime_ns for path in out.glob("trials/*/trial.json")}


def test_each_point_is_trained_with_each_seed_without_a_test_split(swept):
    _, trials = swept
    assert [trial.hyperparameters for trial in trials] == [
        {"learning_rate": 0.01},
        {"learning_rate": 0.001},
    ]
    for trial in trials:
        assert trial.status == "completed"
        assert [seed.seed for seed in trial.seeds] == [1, 2]
        values = [seed.metrics["session_auc"] for seed in trial.seeds]
        assert trial.objective.mean == pytest.approx(sum(values) / 2)
        # |a - b| / sqrt(2) is the sample deviation of two values.
        assert trial.objective.std == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
        assert trial.objective.direction == "max"
        for seed in trial.seeds:
            assert [entry["epoch"] for entry in seed.history] == [1, 2]
            best = max(entry["val_session_auc"] for entry in seed.history)
            assert seed.metrics["session_auc"] == best


def test_a_finished_sweep_keeps_records_and_no_working_files(swept):
    out, _ = swept
    names = {path.name for path in out.iterdir()}
    assert {"sweep.yaml", "trials", "oracle.json", "finished"} <= names
    assert not names & {"work", "cache"}


def test_the_same_command_on_a_finished_sweep_trains_nothing(data, swept):
    out, trials = swept
    before = stamps(out)
    assert tune(data, out, config(seeds=2), QUIET) == trials
    assert stamps(out) == before


def test_a_corrupt_record_is_named_set_aside_and_only_that_trial_runs_again(data, swept, capsys):
    out, trials = swept
    before = stamps(out)
    trial_file(out, "0001").write_text('{"trial_id": ')
    found = tune(data, out, config(seeds=2), Console(stderr=True, width=500))
    said = capsys.readouterr().err
    assert f"{trial_file(out, '0001')}: not valid JSON" in said
    assert "trial 0001: has no record and is run again" in said
    assert trial_file(out, "0001").with_name("trial.json.corrupt").is_file()
    after = stamps(out)
    assert after["0000"] == before["0000"]
    assert after["0001"] != before["0001"]
    assert found[1].objective.mean == pytest.approx(trials[1].objective.mean, abs=1e-6)


def test_a_corrupt_state_is_named_and_recorded_trials_are_not_trained_again(data, swept, capsys):
    out, _ = swept
    before = stamps(out)
    (out / "oracle.json").write_text("{")
    tune(data, out, config(seeds=2), Console(stderr=True, width=500))
    assert "oracle.json: cannot be read" in capsys.readouterr().err
    assert stamps(out) == before


def test_another_configuration_on_the_same_folder_is_refused(data, swept):
    out, _ = swept
    with pytest.raises(UserError, match=r"was begun with seeds=\[1, 2\], not \[1\]"):
        tune(data, out, config(), QUIET)
    with pytest.raises(UserError, match=r"was begun with base.num_epochs=2, not 3"):
        tune(data, out, config(seeds=2, base={**BASE, "num_epochs": 3}), QUIET)


def test_a_folder_of_something_else_is_refused(data, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="exists and holds no sweep"):
        tune(data, tmp_path, config(), QUIET)


def test_a_second_command_on_the_same_sweep_is_refused(data, swept):
    import fcntl

    out, _ = swept
    with open(out / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another command is at work on it"):
            tune(data, out, config(seeds=2), QUIET)


def test_a_trial_that_fails_says_why_and_the_others_go_on(data, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "def space(hp):\n    return {'model': 'moe', 'top_k': hp.Choice('active', [9, 1])}\n"
    )
    base = {**BASE, "num_epochs": 1}
    trials = tune(
        data, tmp_path / "out", config(base=base, space={"function": f"{path}:space"}), QUIET
    )
    assert [trial.status for trial in trials] == ["failed", "completed"]
    assert trials[0].error == "trial: top_k must be <= num_experts = 4, got 9"
    assert trials[0].objective.mean is None
    assert trials[1].hyperparameters == {"active": 1}
    assert trials[1].settings == {"model": "moe", "top_k": 1}


def test_a_sweep_of_failures_stops_and_says_why(data, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("def space(hp):\n    return {'top_k': hp.Int('active', 10, 20)}\n")
    space = {"function": f"{path}:space"}
    words = "stopped, because 2 trials in a row failed; the last: trial: top_k must be <="
    with pytest.raises(UserError, match=words):
        tune(data, tmp_path / "out", config(space=space, max_failures=2), QUIET)
    assert len(load_trials(tmp_path / "out")) == 2


REFUSED = {
    "an objective that is not reported": (
        {"objective": "mrr"},
        "objective 'mrr': the runs of dnn do not report it; they report session_auc, ndcg, loss",
    ),
    "a wrong direction": (
        {"objective": {"name": "loss", "direction": "max"}},
        "objective loss: its direction is min, not max",
    ),
    "another monitor": (
        {"base": {**BASE, "monitor": "ndcg"}},
        "base: monitor is 'ndcg', the objective 'session_auc'",
    ),
    "a gate feature that is not in the data": (
        {"base": {**BASE, "model": "moe"}, "space": {"gate_features": [["sub"], ["hat"]]}},
        "space: gate_features = hat: .*'hat'",
    ),
    "a loss that there is not": (
        {"space": {"loss": ["sigmoid_cross_entropy", "lisstnet"]}},
        "loss = lisstnet",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_is_refused_before_the_first_epoch(data, tmp_path, case):
    changes, words = REFUSED[case]
    with pytest.raises(UserError, match=words):
        tune(data, tmp_path / "out", config(**changes), QUIET)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("space: lamda_grid\n", "space 'lamda_grid' is unknown; there are: lambda_grid, experts"),
        ("spce: 1\n", "unknown key 'spce'; did you mean 'space'?"),
        ("space: lambda_grid\nobjective: mrr\n", "objective 'mrr': the runs of adv_hsc_moe do not"),
    ],
)
def test_the_command_refuses_in_one_line_with_exit_code_2(data, tmp_path, capsys, text, words):
    (tmp_path / "sweep.yaml").write_text(text)
    flags = ["--config", str(tmp_path / "sweep.yaml"), "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as exit_:
        main(["tune", "--data", str(data), *flags])
    said = capsys.readouterr().err
    assert exit_.value.code == 2
    assert said.startswith("error: ")
    assert words in said
    assert said.count("\n") == 1


def test_a_trial_that_is_interrupted_goes_on_after_its_last_epoch(data, tmp_path):
    settings = resolve(config(seeds=2, cache=False), DataFolder(data))
    settings.save(tmp_path / "sweep.yaml")
    plan, job, batches = Plan.open(tmp_path), Job("0000", {}, {}), []

    def interrupt():
        batches.append(1)
        # Each epoch calls after its 2 batches and at its end: 6 times for the first seed, 3 times
        # for the first epoch of the second one. The 10th call is in its second epoch.
        if len(batches) == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_job(plan, job, print, interrupt)
    before = (tmp_path / "work" / "0000" / "seed-1" / "result.json").stat().st_mtime_ns
    assert not trial_file(tmp_path, "0000").exists()
    batches.clear()
    calls = []

    def count():
        calls.append(1)
        path = tmp_path / "work" / "0000" / "seed-1" / "result.json"
        assert path.stat().st_mtime_ns == before

    trial = run_job(plan, job, print, count)
    assert len(calls) == 3
    assert [len(seed.history) for seed in trial.seeds] == [2, 2]
    assert [entry["epoch"] for entry in trial.seeds[1].history] == [1, 2]


@pytest.mark.slow
def test_hyperband_goes_on_from_the_weights_of_the_earlier_trial(data, tmp_path):
    changes = {"algorithm": "hyperband", "hyperband_factor": 2}
    trials = tune(data, tmp_path / "out", config(**changes), QUIET)
    by_id = {trial.trial_id: trial for trial in trials}
    goes_on = [trial for trial in trials if "continues" in trial.budget]
    assert goes_on
    for trial in goes_on:
        before = by_id[trial.budget["continues"]]
        seed, earlier = trial.seeds[0], before.seeds[0]
        assert trial.hyperparameters == before.hyperparameters
        assert len(earlier.history) == trial.budget["initial_epoch"]
        assert len(seed.history) == trial.budget["epochs"]
        assert seed.history[: len(earlier.history)] == earlier.history


@pytest.mark.parametrize("model", MODEL_NAMES)
def test_every_model_name_has_a_hypermodel(data, model):
    base = make_config({**SMALL, "model": model})
    hypermodel = RankingHyperModel(DataFolder(data), base, {"learning_rate": [0.1, 0.01]})
    hp = kt.HyperParameters()
    hypermodel.declare(hp)
    hp.values["learning_rate"] = 0.01
    built = hypermodel.build(hp)
    assert built.name == model
    assert float(built.optimizer.learning_rate.numpy()) == pytest.approx(0.01)


@pytest.mark.slow
def test_kerastuners_own_tuner_takes_the_hypermodel(data, tmp_path):
    base = make_config({**BASE, "model": "moe"})
    hypermodel = RankingHyperModel(DataFolder(data), base, {"top_k": [1, 2]})
    tuner = kt.GridSearch(
        hypermodel, kt.Objective("val_session_auc", "max"), directory=str(tmp_path), seed=1
    )
    tuner.search(epochs=1)
    assert len(tuner.oracle.trials) == 2
    assert all(trial.score > 0 for trial in tuner.oracle.trials.values())


@pytest.mark.slow
def test_a_process_per_trial_records_what_one_process_records(data, tmp_path, swept):
    _, expected = swept
    trials = tune(data, tmp_path / "out", config(seeds=2, process_per_trial=True), QUIET)
    for found, known in zip(trials, expected, strict=True):
        assert found.hyperparameters == known.hyperparameters
        assert found.objective.mean == pytest.approx(known.objective.mean, abs=1e-6)


@pytest.mark.slow
def test_a_trial_whose_process_is_killed_fails_and_the_others_go_on(data, tmp_path):
    (tmp_path / "first").touch()
    path = tmp_path / "mine.py"
    path.write_text(
        "import os, pathlib\n"
        f"first = pathlib.Path({str(tmp_path / 'first')!r})\n"
        f"if os.getppid() == {os.getpid()} and first.exists():\n"
        "    first.unlink()\n"
        "    os.kill(os.getpid(), 9)\n"
        "def space(hp):\n"
        "    return {'learning_rate': hp.Choice('rate', [0.1, 0.01])}\n"
    )
    changes = {"space": {"function": f"{path}:space"}, "process_per_trial": True}
    trials = tune(data, tmp_path / "out", config(**changes), QUIET)
    assert [trial.status for trial in trials] == ["failed", "completed"]
    assert trials[0].error == "its process ended by signal 9; out of memory?"
