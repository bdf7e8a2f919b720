"""Callbacks keep the best epoch, and warn of diverging losses and unused experts."""

import io

import numpy as np
import pytest
from rich.console import Console

from tests.tiny import SMALL, small_config
from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.training.callbacks import EpochProgress, RunHistory, gate_warnings, save_weights


def small_model():
    return tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=[2]), tf.keras.layers.ReLU()])


def test_weights_are_saved_without_the_state_of_the_optimizer(tmp_path):
    model, path = small_model(), tmp_path / "new" / "weights"
    model.compile("adam", "mse")
    model.fit(np.ones([4, 2]), np.ones([4, 3]), verbose=0)
    save_weights(model, path)
    saved = [shape for name, shape in tf.train.list_variables(str(path)) if "VALUE" in name]
    assert sorted(saved) == [[2, 3], [3]]
    other = small_model()
    other.load_weights(str(path)).assert_existing_objects_matched()
    for expected, actual in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_the_best_weights_stay_until_the_next_epoch_begins(tmp_path):
    model = small_model()

    def folders():
        return sorted(path.name for path in (tmp_path / "checkpoints").iterdir())

    history = RunHistory(tmp_path, "val_ndcg", 0)
    history.set_model(model)
    for epoch, value in enumerate((0.5, 0.6)):
        history.on_epoch_begin(epoch)
        history.on_epoch_end(epoch, {"val_ndcg": value})
    # A process that is killed now repeats the second epoch.
    assert folders() == ["epoch-0001", "epoch-0002"]
    again = RunHistory(tmp_path, "val_ndcg", 0)
    again.set_model(model)
    again.on_epoch_begin(1)
    assert folders() == ["epoch-0001"]
    again.on_epoch_end(1, {"val_ndcg": 0.7})
    again.on_train_end()
    assert folders() == ["epoch-0002"]


def test_best_epoch_is_the_first_of_equals_and_skips_what_is_no_number(tmp_path):
    def best_of(monitor, *values):
        history = RunHistory(tmp_path, monitor, 0)
        history.epochs = [{"epoch": i + 1, monitor: value} for i, value in enumerate(values)]
        return history.best

    assert best_of("val_ndcg", 0.5, float("nan"), 0.5)["epoch"] == 1
    assert best_of("val_ndcg", float("nan")) is None
    assert best_of("val_loss", 2.0, 1.0)["epoch"] == 2


def test_warnings_name_dead_experts_runaway_disagreement_and_a_uniform_gate():
    settings = small_config({"model": "adv_hsc_moe", **SMALL, "num_experts": 10, "top_k": 4})
    assert gate_warnings({"dead_experts": 0.0, "gate_entropy": 1.2}, settings) == {}
    actual = gate_warnings(
        {"dead_experts": 4.0, "adversarial_share": 0.6, "gate_entropy": float(np.log(4))}, settings
    )
    assert "4 of 10 experts" in actual["dead"]
    assert "60% of its maximum" in actual["adversarial"]
    assert "near uniform over its 4 experts" in actual["uniform"]


def test_a_huge_loss_is_warned_of_once():
    output = io.StringIO()
    console = Console(file=output, width=80)
    progress = EpochProgress(console, "val_loss", lambda *_: None)
    progress.set_params({"epochs": 4, "steps": None})
    for epoch, loss in enumerate([0.7, 1e6, 2e20, 1e31]):
        progress.on_epoch_begin(epoch)
        progress.on_epoch_end(epoch, {"loss": 0.5, "val_loss": loss})
    warnings = [line for line in output.getvalue().splitlines() if "warning" in line]
    words = "training diverges; reduce learning_rate or set clip_norm"
    assert warnings == [f"warning: the loss is 2.0e+20: {words}"]


def test_a_monitor_that_no_validation_list_defines_ends_training_after_one_epoch(tmp_path):
    history = RunHistory(tmp_path, "val_ndcg", 0)
    with pytest.raises(UserError, match="val_ndcg is undefined: no validation list has"):
        history.on_epoch_end(0, {"loss": 0.5, "val_loss": 0.5})
    assert not list(tmp_path.iterdir())  # nothing to resume
