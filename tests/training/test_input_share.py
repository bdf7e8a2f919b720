"""The share of a training step that is spent waiting for input."""

import time

import pytest
from rich.console import Console

from tests.tiny import SMALL, write_data_folder
from tfr_moe._compat import tf
from tfr_moe.config import make_config
from tfr_moe.folders import read_json
from tfr_moe.training import train
from tfr_moe.training.input_share import InputShare

SLEEP = 0.05


def numbers(slow):
    """Numbers, each of which takes a while to make where `slow`."""

    def wait(n):
        time.sleep(SLEEP if slow else 0.0)
        return n

    data = tf.data.Dataset.range(6).map(lambda n: tf.numpy_function(wait, [n], tf.int64))
    return data.apply(tf.data.experimental.assert_cardinality(6))


@pytest.mark.parametrize("slow", [True, False])
def test_the_wait_is_that_for_the_batches_after_the_first(slow, tmp_path):
    share = InputShare(Console(quiet=True), tmp_path)
    share.on_epoch_begin(0)
    steps = share.timed(numbers(slow))
    assert int(steps.cardinality()) == 6
    for step, _ in enumerate(steps):
        time.sleep(SLEEP)  # the step
        share.on_train_batch_end(step)
    share.on_test_begin()
    [epoch] = read_json(tmp_path / "profile.json")["epochs"]
    assert epoch["steps"] == 5
    if slow:
        # Half of the time; a busy machine may lengthen either side.
        assert epoch["waiting_seconds"] > 5 * 0.9 * SLEEP
        assert 0.1 < epoch["share"] < 0.9
    else:
        assert epoch["share"] < 0.5


def test_a_profiled_run_tells_the_share_and_keeps_a_profile(tmp_path, capsys):
    data = write_data_folder(tmp_path / "data", 80, 10, 10)
    settings = {**SMALL, "batch_size": 8, "num_epochs": 1, "profile": True, "cache": "memory"}
    train(data, tmp_path / "run", make_config({"model": "dnn", **settings}))
    assert "of a step is spent waiting for it" in capsys.readouterr().err
    [epoch] = read_json(tmp_path / "run" / "profile.json")["epochs"]
    assert 0 <= epoch["share"] <= 1
    assert epoch["steps"] == 9
    assert list((tmp_path / "run" / "tensorboard").rglob("*.xplane.pb"))
