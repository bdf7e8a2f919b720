"""The HParams logs read back by TensorBoard's own reader."""

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2

from tests.tuning.sweeps import failed, gate_trials, lambda_trials, trial, write_sweep
from tfr_moe._compat import tf
from tfr_moe.tuning.hparams import converter, domain, write_hparams
from tfr_moe.tuning.summary import summarize_sweep


def read(folder):
    """Plugin data by tag and scalars by tag of one run's folder."""
    found = EventAccumulator(str(folder))
    found.Reload()
    plugin = {
        tag: plugin_data_pb2.HParamsPluginData.FromString(content)
        for tag, content in found.PluginTagToContent("hparams").items()
    }
    scalars = {
        tag: {e.step: float(tf.make_ndarray(e.tensor_proto)) for e in found.Tensors(tag)}
        for tag in found.Tags()["tensors"]
        if not tag.startswith("_hparams_")
    }
    return plugin, scalars


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    path = write_sweep(
        tmp_path_factory.mktemp("hparams") / "s", [*lambda_trials(), failed("x", {"b": 1}, "no")]
    )
    return write_hparams(summarize_sweep(path))


def test_there_is_a_session_for_each_seed_and_none_for_failures(logs):
    sessions = {str(p.parent.relative_to(logs)) for p in logs.glob("*/*/events*")}
    assert len(sessions) == 32
    assert "0010/seed-1" in sessions and "0010/seed-2" in sessions


def test_a_session_holds_its_values_curve_and_best_metrics(logs):
    plugin, scalars = read(logs / "0010" / "seed-2")
    start = plugin["_hparams_/session_start_info"].session_start_info
    assert {k: v.number_value for k, v in start.hparams.items()} == {
        "hsc_weight": 0.001,
        "adversarial_weight": 0.001,
    }
    assert start.group_name == "0010"
    assert scalars["val_session_auc"] == pytest.approx({1: 0.7832, 2: 0.8032, 3: 0.8232})
    assert scalars["best/session_auc"] == pytest.approx({3: 0.8232})


def test_the_experiment_names_what_varied_and_the_objective_first(logs):
    experiment = read(logs)[0]["_hparams_/experiment"].experiment
    infos = {info.name: info for info in experiment.hparam_infos}
    assert [v.number_value for v in infos["hsc_weight"].domain_discrete.values] == pytest.approx(
        [1e-4, 1e-3, 1e-2, 1e-1]
    )
    assert infos["hsc_weight"].display_name == "hsc_weight (λ₁)"
    assert experiment.metric_infos[0].name.tag == "best/session_auc"


def test_written_again_the_logs_replace_the_old_ones(tmp_path):
    path = write_sweep(tmp_path / "s", lambda_trials()[:2])
    write_hparams(summarize_sweep(path))
    logs = write_hparams(summarize_sweep(path))
    assert len(list(logs.glob("0000/seed-1/events*"))) == 1
    assert sorted(p.name for p in path.iterdir()) == ["sweep.yaml", "tensorboard", "trials"]


def test_words_are_logged_as_words(tmp_path):
    logs = write_hparams(summarize_sweep(write_sweep(tmp_path / "s", gate_trials())))
    start = read(logs / "0001" / "seed-1")[0]["_hparams_/session_start_info"].session_start_info
    assert start.hparams["gate_input"].string_value == "TC+SC"


def test_values_of_several_types_are_brought_to_one():
    assert [converter([1, "a", None])(value) for value in (1, "a", None)] == ["1", "a", "–"]
    assert converter([1, 2.5])(1) == 1.0
    assert domain([16, 10]).values == [10, 16]
    assert domain([[64, 32], [16]]).values == ["16", "64-32"]


def test_many_numbers_become_an_interval():
    found = domain([i / 10 for i in range(20)])
    assert (found.min_value, found.max_value) == (0.0, 1.9)
    assert domain(list(range(13))).max_value == 12


def test_a_hyperparameter_of_some_trials_only_is_left_out_of_the_others(tmp_path):
    trials = [trial("0", {"a": 1}, [0.7]), trial("1", {"a": 2, "b": 3}, [0.8])]
    logs = write_hparams(summarize_sweep(write_sweep(tmp_path / "s", trials)))
    start = read(logs / "0" / "seed-1")[0]["_hparams_/session_start_info"].session_start_info
    assert set(start.hparams) == {"a"}
