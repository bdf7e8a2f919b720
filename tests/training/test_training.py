"""Runs learn, repeat under a seed, keep the best epoch, resume after a kill, reject nonsense."""

import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import tfr_moe
from tests.tiny import SMALL, TASKS, small_config, write_data_folder
from tfr_moe import metrics
from tfr_moe._compat import tf
from tfr_moe.baselines import train_any
from tfr_moe.config import make_config
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.errors import UserError
from tfr_moe.training import load_run, train
from tfr_moe.training.callbacks import DefinedLogs, EpochProgress
from tfr_moe.training.run import fit, make_builder, warn_of_last_epoch
from tfr_moe.tuning.trial import TrialPipeline

QUIET = Console(quiet=True)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data_folder(tmp_path_factory.mktemp("data") / "set")


def config(**settings):
    shared = {"model": "adv_hsc_moe", "metrics": ["session_auc"], **SMALL}
    return small_config({**shared, **settings})


def light(**settings):
    """The configuration of a small tower, for what doesn't depend on the model."""
    return config(model="dnn", metrics=["ndcg"], monitor="ndcg", **settings)


class FirstScores(tf.keras.callbacks.Callback):
    """The scores of the test lists after the first epoch."""

    def __init__(self, data):
        super().__init__()
        self.lists = ElwcDatasetBuilder(DataFolder(data)).build_evaluation_dataset("test")

    def on_epoch_end(self, epoch, logs=None):
        if epoch == 0:
            scores = [self.model(features).numpy().ravel() for features, _, _ in self.lists]
            self.scores = np.concatenate(scores)


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """A run that stopped two epochs after its best one, its result and its first scores."""
    run, first = tmp_path_factory.mktemp("trained") / "run", FirstScores(data)
    settings = config(seed=5, num_epochs=20, early_stopping_patience=2)
    return run, train(data, run, settings, QUIET, callbacks=[first]), first.scores


@pytest.mark.smoke
def test_training_learns_and_leaves_a_whole_run(trained):
    run, result, _ = trained
    history = json.loads((run / "history.json").read_text())
    assert history[-1]["val_session_auc"] > 0.75 > history[0]["val_session_auc"]
    assert result["best"]["val_session_auc"] == max(e["val_session_auc"] for e in history)
    for name in ("hsc", "adversarial", "gate_entropy", "busiest_share"):
        assert name in history[0], name
        assert f"val_{name}" not in history[0], name
    names = {path.name for path in run.iterdir()}
    assert names == {
        "checkpoints", "config.yaml", "history.json", "manifest.json", "metrics.json",
        "schema.json", "statistics.json", "tensorboard", "vocabulary",
    }  # fmt: skip


def test_a_run_that_cannot_be_loaded_is_rejected_with_the_version_that_wrote_it(trained, tmp_path):
    run = shutil.copytree(trained[0], tmp_path / "run")
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["versions"] == {"tfr_moe": tfr_moe.__version__}
    settings = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(settings + "bygone: 1\n")
    with pytest.raises(UserError, match=r"^config .*config.yaml: unknown key 'bygone'"):
        load_run(run)
    manifest["versions"] = {"tfr_moe": "9.0.0"}
    (run / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=r"run: was written by tfr_moe 9\.0\.0, .*'bygone'"):
        load_run(run)
    (run / "manifest.json").unlink()  # version 0.1.0 wrote none
    with pytest.raises(UserError, match=r"run: was written by tfr_moe 0\.1\.0, .*'bygone'"):
        load_run(run)


def test_the_gates_of_the_best_epoch_are_checked(data, tmp_path, monkeypatch):
    checked = []

    def record(model, *_):
        checked.extend(model.get_weights())
        return {}

    def worsen(self, epoch, logs):
        logs["val_ndcg"] = -epoch

    monkeypatch.setattr("tfr_moe.training.run.gate_reports", record)
    monkeypatch.setattr(DefinedLogs, "on_epoch_end", worsen)
    result = train(data, tmp_path / "run", light(num_epochs=2), QUIET)
    assert result["best_epoch"] == 1
    best = load_run(tmp_path / "run").model.get_weights()
    assert all(map(np.array_equal, checked, best)) and len(checked) == len(best)


def test_the_loaded_model_is_that_of_the_best_epoch(data, trained):
    run, result, _ = trained
    loaded = load_run(run)
    loaded.model.compile(metrics=[metrics.get("session_auc")])
    valid = ElwcDatasetBuilder(DataFolder(data), 32).build_valid_dataset()
    again = loaded.model.evaluate(valid, verbose=0, return_dict=True)["session_auc"]
    assert again == pytest.approx(result["best"]["val_session_auc"], abs=1e-6)
    assert [p.name for p in (run / "checkpoints").iterdir()] == [
        f"epoch-{result['best_epoch']:04d}"
    ]


def test_the_same_seed_gives_the_same_scores_and_another_seed_others(data, trained, tmp_path):
    again = {seed: FirstScores(data) for seed in (5, 6)}
    for seed, first in again.items():
        settings = config(seed=seed, num_epochs=1, deterministic=False)
        train(data, tmp_path / str(seed), settings, QUIET, callbacks=[first])
    # Sums in another order of threads differ in the last bits.
    np.testing.assert_allclose(again[5].scores, trained[2], atol=1e-4)
    assert np.abs(again[6].scores - trained[2]).max() > 1e-2


@pytest.mark.parametrize(
    ("best", "epochs", "drop", "warned"),
    [
        (4, 4, None, True),
        (4, 4, 4, True),
        (4, 4, 3, False),  # the lower rate is meant to improve
        (3, 4, None, False),
        (1, 1, None, False),
    ],
)
def test_a_run_that_improves_until_its_last_epoch_is_warned_of(best, epochs, drop, warned):
    output = io.StringIO()
    settings = config(num_epochs=epochs, learning_rate_drop_epoch=drop)
    warn_of_last_epoch(best, settings, Console(file=output, width=80))
    line = "warning: the best epoch is the last one, 4: raise num_epochs, it may improve further\n"
    assert output.getvalue() == (line if warned else "")


def test_steps_per_epoch_repeat_the_data_until_training_stops_early(data, tmp_path):
    # 5 of the 7 batches of the training lists.
    settings = {"steps_per_epoch": 5, "early_stopping_patience": 2, "learning_rate": 1e-9}
    result = train(data, tmp_path / "run", light(num_epochs=10, **settings), QUIET)
    assert 3 <= result["epochs"] == result["best_epoch"] + 2 < 10


KILLED = """
import sys
from pathlib import Path
from tfr_moe.training import train
from tfr_moe.config import load_config
train(sys.argv[1], sys.argv[2], load_config(sys.argv[3]))
"""


def test_a_killed_run_resumes_where_it_was(data, tmp_path):
    run = tmp_path / "run"
    settings = light(num_epochs=200, early_stopping_patience=0, learning_rate=1e-4)
    settings.save(tmp_path / "config.yaml")
    command = [sys.executable, "-c", KILLED, str(data), str(run), str(tmp_path / "config.yaml")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    history = run / "history.json"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (
        history.exists() and len(json.loads(history.read_text())) >= 3
    ):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = json.loads(history.read_text())
    assert 3 <= len(before) < 200
    assert not (run / "metrics.json").exists()
    with pytest.raises(UserError, match="is not finished; re-run the same training command"):
        load_run(run)

    # Only the number of epochs may not differ, so the rest of the test edits what was recorded.
    short = settings.replace(num_epochs=len(before) + 2)
    short.save(run / "config.yaml")
    train(data, run, short, QUIET)
    after = json.loads(history.read_text())
    assert [entry["epoch"] for entry in after] == list(range(1, len(before) + 3))
    assert after[: len(before) - 1] == before[:-1]
    # The optimizer's state came back: the loss goes on falling from where it was.
    assert after[-1]["loss"] < before[0]["loss"]


def test_a_resumed_run_reads_other_lists_than_in_its_first_epoch(data, tmp_path, monkeypatch):
    read, build = [], ElwcDatasetBuilder.build_train_dataset

    def recorded(builder):
        dataset = build(builder)
        read.append(next(iter(dataset))[1].numpy().tolist())
        return dataset

    def stop(epoch, logs):
        if epoch == 1 and len(read) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(ElwcDatasetBuilder, "build_train_dataset", recorded)
    settings = light(num_epochs=2, steps_per_epoch=1)
    callback = tf.keras.callbacks.LambdaCallback(on_epoch_begin=stop)
    with pytest.raises(KeyboardInterrupt):
        train(data, tmp_path / "run", settings, QUIET, callbacks=[callback])
    train(data, tmp_path / "run", settings, QUIET)
    assert len(read) == 2 and read[0] != read[1]


def test_training_leaves_the_random_numbers_of_the_caller_alone(data, tmp_path):
    random.seed(5)
    np.random.seed(5)
    expected = random.random(), np.random.random()
    random.seed(5)
    np.random.seed(5)
    train(data, tmp_path / "run", light(num_epochs=1), QUIET)
    assert (random.random(), np.random.random()) == expected


def test_a_run_begins_in_an_empty_folder_and_is_not_trained_again_or_with_others(data, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    with pytest.raises(UserError, match="gate_features"):
        train(data, run, config(gate_features=("brand",)), QUIET)
    assert not any(run.iterdir())
    train(data, run, light(num_epochs=1), QUIET)
    with pytest.raises(UserError, match="is finished; choose another folder"):
        train(data, run, light(num_epochs=1), QUIET)
    os.remove(run / "metrics.json")
    with pytest.raises(UserError, match="was started with seed=1, not 2"):
        train(data, run, light(num_epochs=1, seed=2), QUIET)


def test_a_folder_with_other_things_in_it_is_left_alone(data, tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(UserError, match="the folder is not empty and is not a run"):
        train(data, tmp_path, config(), QUIET)
    assert [p.name for p in tmp_path.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize("below", ["", "run"])
def test_a_run_that_would_stand_on_a_file_is_rejected(data, tmp_path, below):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(UserError, match=r"run .*letter.txt.*: cannot be made"):
        train(data, tmp_path / "letter.txt" / below, config(), QUIET)
    assert (tmp_path / "letter.txt").read_text() == "dear"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": "foo"}, "loss 'foo' is unknown"),
        ({"metrics": ("foo",), "monitor": "foo"}, "'foo'"),
        ({"gate_features": ("brand",)}, "gate_features: 'brand' is not a context feature"),
    ],
)
def test_unknown_names_are_rejected_before_anything_is_trained(data, tmp_path, settings, message):
    with pytest.raises(UserError, match=message):
        train(data, tmp_path / "run", config(**settings), QUIET)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("split", ["train", "validation"])
@pytest.mark.parametrize("cache", ["none", "memory"])
def test_a_split_without_lists_is_named_before_a_folder_is_made(tmp_path, split, cache):
    data = write_data_folder(tmp_path / "data", **{"train": 8, "validation": 8, split: 0})
    with pytest.raises(UserError, match=f"split '{split}' has no lists"):
        train(data, tmp_path / "run", config(cache=cache), QUIET)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_trains_and_leaves_the_policy_as_it_was(data, tmp_path, precision):
    result = train(data, tmp_path / "run", config(precision=precision, num_epochs=2), QUIET)
    assert np.isfinite(result["best"]["val_loss"])
    assert tf.keras.mixed_precision.global_policy().name == "float32"


@pytest.mark.parametrize("model", ["dnn", "lambdamart"])
def test_a_feature_with_one_value_is_warned_of(tmp_path, model):
    data = write_data_folder(tmp_path / "data", train=30, validation=10)
    (data / "vocabulary" / "brand.txt").write_text("brand0\n")
    output = io.StringIO()
    settings = {"model": model, "seed": 1}
    if model == "dnn":
        settings |= {"expert_hidden_dims": (4,), "num_epochs": 1, "metrics": ["session_auc"]}
    train_any(data, tmp_path / "run", make_config(settings), Console(file=output, width=80))
    line = "warning: one value in all training lists, which no model can use: brand\n"
    assert output.getvalue().count(line) == 1


def test_load_run_names_what_is_not_a_run(tmp_path):
    with pytest.raises(UserError, match="no such run"):
        load_run(Path(tmp_path / "none"))


def test_an_interrupted_training_gives_the_cursor_back(data, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(EpochProgress, "on_train_batch_end", interrupt)
    terminal = Console(force_terminal=True, file=io.StringIO())
    with pytest.raises(KeyboardInterrupt):
        train(data, tmp_path / "run", light(num_epochs=1), terminal)
    hidden, visible = (terminal.file.getvalue().rfind(code) for code in ("\x1b[?25l", "\x1b[?25h"))
    assert 0 <= hidden < visible


@pytest.mark.parametrize("model", ["adv_hsc_moe", "mmoe"])
def test_a_step_is_traced_once(tmp_path, model):
    data = DataFolder(write_data_folder(tmp_path / "data", 32, 16, 16, TASKS))
    settings = config(model=model, num_epochs=2, metrics=["ndcg"], monitor="ndcg")
    (tmp_path / "run").mkdir()
    ran = fit(make_builder(data, settings), settings, tmp_path / "run", QUIET, TrialPipeline)
    for function in (ran.model.train_tf_function, ran.model.test_function):
        assert function.experimental_get_tracing_count() == 1


def test_a_loss_that_is_not_a_number_ends_training_in_one_line(data, tmp_path):
    settings = {"learning_rate": 1e30, "clip_norm": None, "num_epochs": 3}
    with pytest.raises(UserError, match="training diverged in epoch 1: the validation loss is"):
        train(data, tmp_path / "run", light(**settings), QUIET)
    # The name is free for the same run with a smaller learning rate.
    assert not (tmp_path / "run").exists()


def test_a_run_that_diverges_after_its_first_epoch_is_kept(data, tmp_path, monkeypatch):
    def diverge(progress, epoch, logs=None):
        if epoch == 1:
            raise UserError("training diverged")

    monkeypatch.setattr(EpochProgress, "on_epoch_end", diverge)
    with pytest.raises(UserError, match="training diverged"):
        train(data, tmp_path / "run", light(num_epochs=3), QUIET)
    assert len(json.loads((tmp_path / "run" / "history.json").read_text())) == 1
