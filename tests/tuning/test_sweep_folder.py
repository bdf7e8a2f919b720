"""Records of trials: written whole, read back equal, and rejected by name when corrupt; locks."""

import json
from contextlib import ExitStack

import pytest

from tfr_moe.errors import UserError
from tfr_moe.tuning.sweep_folder import (
    SeedResult,
    Trial,
    TrialJob,
    ended_trial,
    load_trials,
    trial_file,
    try_lock,
    write_trial,
)


def seed_result(seed, value):
    history = [{"epoch": 1, "loss": 0.7, "val_loss": 0.6, "val_ndcg": value}]
    return SeedResult(seed, {"ndcg": value, "loss": 0.6}, 1, 1, 2.5, history)


def trial(trial_id="00", **changes):
    fields = {
        "hyperparameters": {"num_experts": 16, "gate_features": ["top", "sub"]},
        "seeds": [seed_result(1, 0.5), seed_result(2, 0.7)],
        "mean": 0.6,
        "std": 0.1,
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
    assert [actual.trial_id for actual in load_trials(sweep)] == ["00", "01", "02"]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda text: text[: len(text) // 2], "not valid JSON"),
        (lambda text: "", "not valid JSON"),
        (lambda text: "[]", "dictionary"),
        (lambda text: text.replace('"mean"', '"middle"'), "mean"),
        (lambda text: json.dumps({**json.loads(text), "seeds": 3}), "seeds"),
    ],
)
def test_a_corrupt_record_is_named(sweep, damage, words):
    write_trial(sweep, trial("00"))
    path = trial_file(sweep, "00")
    path.write_text(damage(path.read_text()))
    with pytest.raises(UserError, match="delete it to run the trial again") as caught:
        load_trials(sweep)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)


def test_a_lock_has_one_holder_and_counts_the_workers_of_a_command(tmp_path):
    path = tmp_path / "work" / "0.lock"
    with ExitStack() as held:
        assert try_lock(path, held, "worker-1@host:1") == 1
        assert try_lock(path, held, "worker-2@host:1") == 0
    with ExitStack() as held:
        assert try_lock(path, held, "worker-2@host:1") == 2
    with ExitStack() as held:
        assert try_lock(path, held, "worker-1@other:1") == 1
    assert path.read_text().split() == ["worker-1@host:1", "worker-2@host:1", "worker-1@other:1"]


def test_a_folder_without_sweep_yaml_is_rejected(tmp_path):
    with pytest.raises(UserError, match=r"no such sweep \(sweep.yaml is missing\)"):
        load_trials(tmp_path)


def test_mean_and_sample_deviation_are_over_the_seeds():
    # (0.5 + 0.7) / 2 = 0.6; sqrt((0.1**2 + 0.1**2) / (2 - 1)) = 0.1414...
    actual = ended_trial(TrialJob("0", {}), "ndcg", [seed_result(1, 0.5), seed_result(2, 0.7)])
    assert actual.mean == pytest.approx(0.6)
    assert actual.std == pytest.approx(0.02**0.5)


def test_one_seed_has_no_deviation_and_none_has_no_mean():
    assert ended_trial(TrialJob("0", {}), "ndcg", [seed_result(1, 0.5)]).std is None
    assert ended_trial(TrialJob("0", {}), "ndcg", []).mean is None
