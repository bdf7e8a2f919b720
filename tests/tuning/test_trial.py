"""What a trial trains and records, beside a run of the same settings."""

import pytest
from rich.console import Console

from tests.tiny import SMALL, write_data_folder
from tfr_moe._compat import tf
from tfr_moe.config import applicable, make_config
from tfr_moe.data import DataFolder
from tfr_moe.training import RankingPipeline
from tfr_moe.training.run import fit, make_builder
from tfr_moe.tuning import traced_model
from tfr_moe.tuning.traced_model import TracedModel, draws
from tfr_moe.tuning.trial import TrialPipeline


def test_a_trial_trains_what_train_does(tmp_path):
    folder = DataFolder(write_data_folder(tmp_path / "data", train=64, validation=20))
    gated = {**applicable("adv_hsc_moe", SMALL), "model": "adv_hsc_moe"}
    settings = make_config({**gated, "metrics": ["session_auc"], "num_epochs": 2})
    histories = []
    for pipeline in (RankingPipeline, TrialPipeline):
        run = tmp_path / pipeline.__name__
        run.mkdir()
        builder = make_builder(folder, settings)
        trained = fit(builder, settings, run, Console(quiet=True), pipeline)
        histories.append(trained.history.epochs)
    # Losses, what gates and regularizers record, and all of validation.
    expected = [{n: v for n, v in entry.items() if n != "session_auc"} for entry in histories[0]]
    assert histories[1] == [pytest.approx(entry, rel=1e-5) for entry in expected]
    assert {"session_auc", "hsc", "dead_experts"} <= histories[0][0].keys()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("trials") / "data"
    return DataFolder(write_data_folder(out, train=64, validation=20))


def pipeline_of(folder, run, model, traced, **settings):
    base = {**applicable(model, SMALL), "model": model, "num_epochs": 2}
    config = make_config({**base, **settings})
    run.mkdir()
    builder = make_builder(folder, config)
    return fit(builder, config, run, Console(quiet=True), TrialPipeline, traced=traced)


@pytest.mark.parametrize("optimizer", ["adamw", "adam"])
@pytest.mark.parametrize("model", ["dnn", "wide_deep"])
def test_a_trial_with_the_graphs_of_an_earlier_one_gives_what_it_gives_alone(
    folder, tmp_path, model, optimizer
):
    traced, later = TracedModel(), {"seed": 4, "learning_rate": 0.02, "num_epochs": 3}
    first = pipeline_of(folder, tmp_path / "first", model, traced, optimizer=optimizer)
    tf.keras.backend.clear_session()
    second = pipeline_of(folder, tmp_path / "2", model, traced, optimizer=optimizer, **later)
    alone = pipeline_of(folder, tmp_path / "3", model, TracedModel(), optimizer=optimizer, **later)
    assert second.model is first.model
    assert second.model.train_tf_function.experimental_get_tracing_count() == 1
    assert second.history.epochs == [pytest.approx(entry) for entry in alone.history.epochs]
    assert second.history.epochs[0] != pytest.approx(first.history.epochs[0])


@pytest.mark.parametrize(
    ("model", "trials"),
    [
        ("dnn", [{}, {"weight_decay": 0.5}, {"batch_size": 16}]),
        ("dnn", [{"dropout": 0.1}] * 2),  # draws random numbers
        ("adv_hsc_moe", [{}] * 2),  # likewise
    ],
)
def test_a_trial_whose_graphs_differ_or_draw_gets_its_own(folder, tmp_path, model, trials):
    traced, models = TracedModel(), []
    for number, settings in enumerate(trials):
        run = tmp_path / str(number)
        models.append(pipeline_of(folder, run, model, traced, **settings).model)
    assert len({id(model) for model in models}) == len(trials)


def test_a_large_model_is_not_kept_for_the_next_trial(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(traced_model, "_LARGEST", 100)
    traced = TracedModel()
    earlier = pipeline_of(folder, tmp_path / "1", "dnn", traced)
    assert pipeline_of(folder, tmp_path / "2", "dnn", traced).model is not earlier.model


@pytest.mark.parametrize("drawn", [True, False])
def test_random_numbers_in_a_branch_of_a_graph_are_found(drawn):
    def branch():
        return tf.random.uniform([]) if drawn else tf.zeros([])

    function = tf.function(lambda x: tf.cond(x > 0, branch, lambda: x))
    graph = function.get_concrete_function(tf.TensorSpec([])).graph
    assert draws(graph) is drawn
