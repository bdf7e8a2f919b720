"""Records of trials: written whole, read back equal, and set aside by name when corrupt."""

import json

import pytest

from tfr_moe.errors import UserError
from tfr_moe.tuning.records import (
    ObjectiveResult,
    SeedResult,
    Trial,
    load_trials,
    set_aside,
    summarize,
    trial_file,
    write_trial,
)


def seed_result(seed, value):
    history = [{"epoch": 1, "loss": 0.7, "val_loss": 0.6, "val_ndcg": value}]
    return SeedResult(seed, {"ndcg": value, "loss": 0.6}, 1, 1, 2.5, history)


def trial(trial_id="00", **changes):
    fields = {
        "hyperparameters": {"num_experts": 16, "gate_input": "TC+SC"},
        "status": "completed",
        "seeds": [seed_result(1, 0.5), seed_result(2, 0.7)],
        "objective": ObjectiveResult("ndcg", 0.6, 0.1, "max"),
        "settings": {"gate_features": ["top", "sub"], "num_experts": 16},
        "budget": {"epochs": 4},
    }
    return Trial(trial_id, **{**fields, **changes})


@pytest.fixture
def sweep(tmp_path):
    (tmp_path / "sweep.yaml").write_text("data: data\n")
    return tmp_path


def test_a_trial_reads_back_equal(sweep):
    written = trial()
    write_trial(sweep, written)
    assert load_trials(sweep) == [written]


def test_trials_come_in_the_order_of_their_ids(sweep):
    for trial_id in ("02", "00", "01"):
        write_trial(sweep, trial(trial_id))
    assert [found.trial_id for found in load_trials(sweep)] == ["00", "01", "02"]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda text: text[: len(text) // 2], "not valid JSON"),
        (lambda text: "", "not valid JSON"),
        (lambda text: "[]", "dictionary"),
        (lambda text: text.replace('"completed"', '"running"'), "status"),
        (lambda text: json.dumps({**json.loads(text), "seeds": 3}), "seeds"),
    ],
)
def test_a_corrupt_record_is_named_and_set_aside_and_the_others_are_read(sweep, damage, words):
    write_trial(sweep, trial("00"))
    write_trial(sweep, trial("01"))
    path = trial_file(sweep, "00")
    path.write_text(damage(path.read_text()))
    warnings = []
    assert [found.trial_id for found in load_trials(sweep, warnings.append)] == ["01"]
    assert len(warnings) == 1
    assert str(path) in warnings[0]
    assert words in warnings[0]
    assert not path.exists()
    assert path.with_name("trial.json.corrupt").is_file()
    load_trials(sweep, warnings.append)
    assert len(warnings) == 1


def test_nothing_that_was_set_aside_is_overwritten(tmp_path):
    path = tmp_path / "trial.json"
    for content in ("first", "second"):
        path.write_text(content)
        set_aside(path)
    assert (tmp_path / "trial.json.corrupt").read_text() == "first"
    assert (tmp_path / "trial.json.corrupt-2").read_text() == "second"


def test_a_folder_without_sweep_yaml_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"no such sweep \(sweep.yaml is missing\)"):
        load_trials(tmp_path)


def test_mean_and_sample_deviation_are_over_the_seeds():
    # (0.5 + 0.7) / 2 = 0.6; sqrt((0.1**2 + 0.1**2) / (2 - 1)) = 0.1414...
    found = summarize("ndcg", "max", [seed_result(1, 0.5), seed_result(2, 0.7)])
    assert found.mean == pytest.approx(0.6)
    assert found.std == pytest.approx(0.02**0.5)


def test_one_seed_has_no_deviation_and_none_has_no_mean():
    assert summarize("ndcg", "max", [seed_result(1, 0.5)]).std is None
    assert summarize("ndcg", "max", []).mean is None
