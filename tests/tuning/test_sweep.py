"""Sweeps on a small data set without a test split: training, records, resuming, rejections."""

import os
import shutil
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from rich.console import Console

from tests.tiny import SMALL, small_config, write_data_folder
from tfr_moe._compat import tf
from tfr_moe.cli import main
from tfr_moe.config import MODEL_NAMES, applicable
from tfr_moe.data import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.tuning import keras_tuner as kt
from tfr_moe.tuning.config import make_sweep_config
from tfr_moe.tuning.hypermodel import RankingHyperModel
from tfr_moe.tuning.sweep import resolve, tune
from tfr_moe.tuning.sweep_folder import (
    Trial,
    TrialJob,
    load_trials,
    trial_file,
    write_trial,
)
from tfr_moe.tuning.trial import SweepContext, TrialPipeline, run_job
from tfr_moe.utils.io import write_json

build_callbacks = TrialPipeline.build_callbacks
BASE = {
    **applicable("dnn", SMALL),
    "model": "dnn",
    "expert_hidden_dims": [8],
    "metrics": ["session_auc"],
    "num_epochs": 2,
}
# Trials of trees take a tenth of the time of a model's.
TREES = {
    "base": {"model": "lambdamart", "library_parameters": {"num_iterations": 2}},
    "space": {"library_parameters.num_leaves": [2, 3]},
}
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
        assert not trial.failed
        assert [seed.seed for seed in trial.seeds] == [1, 2]
        values = [seed.metrics["session_auc"] for seed in trial.seeds]
        assert trial.mean == pytest.approx(sum(values) / 2)
        # |a - b| / sqrt(2) is the sample deviation of two values.
        assert trial.std == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
        for seed in trial.seeds:
            assert [entry["epoch"] for entry in seed.history] == [1, 2]
            best = max(entry["val_session_auc"] for entry in seed.history)
            assert seed.metrics["session_auc"] == best


def test_a_finished_sweep_keeps_records_and_no_working_files(swept):
    out, _ = swept
    names = {path.name for path in out.iterdir()}
    assert {"sweep.yaml", "trials", "oracle.json"} <= names
    assert "work" not in names


def test_the_same_command_on_a_finished_sweep_trains_nothing(data, swept):
    out, trials = swept
    before = stamps(out)
    assert tune(data, out, config(seeds=2), QUIET) == trials
    assert stamps(out) == before


def test_a_trial_whose_record_was_deleted_is_trained_again_and_no_other(data, swept, capsys):
    out, trials = swept
    before = stamps(out)
    trial_file(out, "0001").write_text('{"trial_id": ')
    with pytest.raises(UserError, match=r"0001/trial.json: .*not valid JSON.*; delete it to run"):
        tune(data, out, config(seeds=2), QUIET)
    trial_file(out, "0001").unlink()
    again = tune(data, out, config(seeds=2), Console(stderr=True, width=500))
    assert "trial 0001: has no record and is run again" in capsys.readouterr().err
    after = stamps(out)
    assert after["0000"] == before["0000"]
    assert again[1].mean == pytest.approx(trials[1].mean, abs=1e-6)


def test_a_search_whose_state_was_deleted_trains_no_recorded_trial_again(data, swept):
    out, _ = swept
    before = stamps(out)
    (out / "oracle.json").write_text("{")
    with pytest.raises(UserError, match=r"oracle.json: cannot be read .*; delete it to search"):
        tune(data, out, config(seeds=2), QUIET)
    (out / "oracle.json").unlink()
    assert tune(data, out, config(seeds=2), QUIET) == load_trials(out)
    assert stamps(out) == before


def test_another_configuration_on_the_same_folder_is_rejected(data, swept):
    out, _ = swept
    with pytest.raises(UserError, match=r"was started with seeds=\[1, 2\]\. Received: seeds=\[1\]"):
        tune(data, out, config(), QUIET)
    with pytest.raises(UserError, match=r"with base\.num_epochs=2\. Received: base\.num_epochs=3"):
        tune(data, out, config(seeds=2, base={**BASE, "num_epochs": 3}), QUIET)
    with pytest.raises(UserError, match=r"with objective='session_auc'\. Received: objec"):
        tune(data, out, config(seeds=2, objective="loss"), QUIET)


def test_a_folder_of_something_else_is_rejected(data, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="exists and is not a sweep"):
        tune(data, tmp_path, config(), QUIET)


def test_a_data_set_that_was_built_again_is_rejected_and_a_copy_is_not(data, tmp_path):
    out, first, copy = tmp_path / "out", tmp_path / "data", tmp_path / "copy"
    shutil.copytree(data, first)
    quick = config(**TREES)
    trials = tune(first, out, quick, QUIET)
    shutil.copytree(first, copy)
    assert tune(copy, out, quick, QUIET) == trials
    statistics = first / "statistics.json"
    statistics.write_text(statistics.read_text() + " ")
    with pytest.raises(UserError, match="was started with another data set, or the data set was"):
        tune(first, out, quick, QUIET)
    with pytest.raises(UserError, match="was started with another data set"):
        SweepContext.open(out, first)


def test_two_commands_share_a_sweep(data, tmp_path, monkeypatch):
    out, both, jobs = tmp_path / "out", threading.Barrier(2, timeout=60), []

    def untrained(context, job, log):
        # Each command has one of the two trials here, or the barrier breaks.
        both.wait()
        jobs.append(job.trial_id)
        trial = Trial(job.trial_id, job.hyperparameters, [], 0.5, None)
        write_trial(context.path, trial)
        return trial

    monkeypatch.setattr("tfr_moe.tuning.sweep.run_job", untrained)
    with ThreadPoolExecutor(2) as pool:
        commands = [pool.submit(tune, data, out, config(), QUIET) for _ in range(2)]
        first, second = (command.result() for command in commands)
    assert first == second == load_trials(out)
    assert sorted(jobs) == ["0000", "0001"]
    assert [trial.hyperparameters["learning_rate"] for trial in first] == [0.01, 0.001]


MOE = {**BASE, **applicable("moe", SMALL), "model": "moe", "num_epochs": 1}


def test_a_failed_trial_records_the_reason_and_the_sweep_continues(data, tmp_path):
    # K = 4 of 4 experts fits N = 4 only, which the checks of single settings cannot see.
    space = {"top_k": [4], "num_experts": {"min": 3, "max": 4}}
    failed, trained = tune(data, tmp_path / "out", config(base=MOE, space=space), QUIET)
    assert failed.failed and failed.hyperparameters == {"top_k": 4, "num_experts": 3}
    assert failed.error == "trial: top_k must be <= num_experts = 3, got 4"
    assert failed.mean is None
    assert trained.mean and not trained.failed


def test_a_trial_that_diverges_fails_as_its_training_run_would(data, tmp_path):
    # Scores that are NaN are ties with a session AUC of 1/2, above that of many other trials.
    space = {"learning_rate": [1e30, 0.01]}
    failed, trained = tune(data, tmp_path / "out", config(space=space), QUIET)
    assert failed.failed and "training diverged in epoch 1" in failed.error
    assert not trained.failed


def test_failures_in_a_row_stop_the_sweep_with_the_reason(data, tmp_path):
    space = {"top_k": {"min": 3, "max": 4}, "num_experts": {"min": 1, "max": 2}}
    words = "stopped after 2 failed trials in a row; the last: trial: top_k must be <="
    with pytest.raises(UserError, match=words):
        tune(data, tmp_path / "out", config(base=MOE, space=space, max_failures=2), QUIET)
    assert len(load_trials(tmp_path / "out")) == 2


def test_a_sweep_without_a_result_is_an_error(data, tmp_path, capsys):
    space = {"top_k": {"min": 3, "max": 4}, "num_experts": {"min": 1, "max": 2}}
    path = config(base=MOE, space=space, algorithm="random", max_trials=1)
    path.save(tmp_path / "sweep.yaml")
    command = ["tune", "--data", str(data), "--config", str(tmp_path / "sweep.yaml"), "--out"]
    with pytest.raises(SystemExit) as ended:
        main([*command, str(tmp_path / "sweep")])
    assert ended.value.code == 2
    assert "all trials failed; the last: trial: top_k must be <=" in capsys.readouterr().err


REJECTED = {
    "an objective that is not reported": (
        {"objective": "mrr"},
        "objective 'mrr': not reported by runs of dnn; allowed: session_auc, loss",
    ),
    "another monitor": (
        {"base": {**BASE, "monitor": "loss"}},
        "base: monitor must be the objective 'session_auc' or omitted",
    ),
    "a gate feature that is not in the data": (
        {"base": {**BASE, "model": "moe"}, "space": {"gate_features": [["sub"], ["hat"]]}},
        r'space: gate_features = \["hat"\]: .*hat',
    ),
    "a loss that there is not": (
        {"space": {"loss": ["sigmoid_cross_entropy", "lisstnet"]}},
        "loss = lisstnet",
    ),
}


@pytest.mark.parametrize("case", REJECTED)
def test_is_rejected_before_the_first_epoch(data, tmp_path, case):
    changes, words = REJECTED[case]
    with pytest.raises(UserError, match=words):
        tune(data, tmp_path / "out", config(**changes), QUIET)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("space: lambda_grid\n", "space: must be a mapping of names to values"),
        ("spce: 1\n", "unknown key 'spce'; did you mean 'space'?"),
        (
            "space: {hsc_weight: [0.1]}\nobjective: mrr\n",
            "objective 'mrr': not reported by runs of adv_hsc_moe",
        ),
    ],
)
def test_the_command_rejects_in_one_line_with_exit_code_2(data, tmp_path, capsys, text, words):
    (tmp_path / "sweep.yaml").write_text(text)
    flags = ["--config", str(tmp_path / "sweep.yaml"), "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as exit_:
        main(["tune", "--data", str(data), *flags])
    printed = capsys.readouterr().err
    assert exit_.value.code == 2
    assert printed.startswith("error: ")
    assert words in printed
    assert printed.count("\n") == 1


def test_an_interrupted_trial_resumes_after_its_last_epoch(data, tmp_path, monkeypatch):
    settings = resolve(config(seeds=2, cache=False), DataFolder(data))
    settings.save(tmp_path / "sweep.yaml")
    context, job, batches = SweepContext.open(tmp_path, data), TrialJob("0000", {}), []

    def interrupt():
        batches.append(1)
        # 2 batches an epoch: 4 for the first seed, 2 for the first epoch of the second one.
        if len(batches) == 7:
            raise KeyboardInterrupt

    call_after_batches(monkeypatch, interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_job(context, job, print)
    before = (tmp_path / "work" / "0000" / "seed-1" / "result.json").stat().st_mtime_ns
    assert not trial_file(tmp_path, "0000").exists()
    # All that it needs to go on: nothing reads the weights of its best epoch.
    interrupted = {path.name for path in (tmp_path / "work" / "0000" / "seed-2").iterdir()}
    assert interrupted == {"backup", "history.json"}
    calls = []

    def count():
        calls.append(1)
        path = tmp_path / "work" / "0000" / "seed-1" / "result.json"
        assert path.stat().st_mtime_ns == before

    call_after_batches(monkeypatch, count)
    trial = run_job(context, job, print)
    assert len(calls) == 2
    assert [len(seed.history) for seed in trial.seeds] == [2, 2]
    assert [entry["epoch"] for entry in trial.seeds[1].history] == [1, 2]


def test_what_a_killed_worker_left_is_taken_by_the_same_search_alone(data, tmp_path):
    out = tmp_path / "out"
    seed = out / "work" / "0000" / "seed-1"
    left = {"seed": 1, "metrics": {"session_auc": 0.99}, "best_epoch": 1, "epochs": 1}

    def first_trial():
        seed.mkdir(parents=True)
        write_json(seed / "result.json", left)
        return tune(data, out, config(**TREES), QUIET)[0]

    tune(data, out, config(**TREES), QUIET)
    trial_file(out, "0000").unlink()
    assert first_trial().mean == 0.99
    trial_file(out, "0000").unlink()
    # Its trials may have other settings under the same numbers.
    (out / "oracle.json").unlink()
    assert first_trial().mean < 0.99


def call_after_batches(monkeypatch, function):
    """Makes trials call a function after each training batch."""
    callback = tf.keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: function())
    monkeypatch.setattr(
        TrialPipeline,
        "build_callbacks",
        lambda self: [callback, *build_callbacks(self)],
    )


def test_a_trial_that_crashed_three_workers_fails(data, tmp_path):
    resolve(config(), DataFolder(data)).save(tmp_path / "sweep.yaml")
    context = SweepContext.open(tmp_path, data)
    trial = run_job(context, TrialJob("0000", {}, attempts=4), print)
    assert trial.error == "crashed 3 workers; possibly out of memory"
    assert load_trials(tmp_path) == [trial]


@pytest.mark.slow
def test_hyperband_continues_from_the_weights_of_the_earlier_trial(data, tmp_path):
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
    base = small_config({**SMALL, "model": model})
    hypermodel = RankingHyperModel(DataFolder(data), base, {"learning_rate": [0.1, 0.01]})
    hp = kt.HyperParameters()
    hypermodel.space.suggest(hp)
    hp.values["learning_rate"] = 0.01
    built = hypermodel.build(hp)
    assert built.name == model
    assert float(built.optimizer.learning_rate.numpy()) == pytest.approx(0.01)


@pytest.mark.slow
def test_kerastuners_own_tuner_takes_the_hypermodel(data, tmp_path):
    base = small_config(BASE)
    hypermodel = RankingHyperModel(DataFolder(data), base, {"learning_rate": [0.01, 0.001]})
    tuner = kt.GridSearch(
        hypermodel, kt.Objective("val_session_auc", "max"), directory=str(tmp_path), seed=1
    )
    tuner.search(epochs=1)
    assert len(tuner.oracle.trials) == 2
    assert all(trial.score > 0 for trial in tuner.oracle.trials.values())


@pytest.mark.slow
def test_a_trial_that_crashes_its_workers_fails_and_the_others_continue(data, tmp_path):
    out, pool = tmp_path / "out", ThreadPoolExecutor(1)
    lock, killed = out / "work" / "0000.lock", []
    sweep = pool.submit(tune, data, out, config(), QUIET, workers=1)
    while len(killed) < 3 and not sweep.done():
        if lock.exists() and len(lock.read_text().split()) > len(killed):
            actual = subprocess.run(
                ["pgrep", "-P", str(os.getpid()), "-f", "tfr_moe.tuning.sweep"],
                capture_output=True,
                check=True,
            )
            os.kill(int(actual.stdout), signal.SIGKILL)
            killed.append(1)
        time.sleep(0.01)
    trials = sweep.result()
    assert [trial.failed for trial in trials] == [True, False]
    assert trials[0].error == "crashed 3 workers; possibly out of memory"
