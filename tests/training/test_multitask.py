"""Runs of several tasks: what they record, resume and refuse, and how they are judged."""

import io
import json
import math

import numpy as np
import pytest
from rich.console import Console

from tests.tiny import SCHEMA, SMALL, TASKS, small_config, write_data_folder
from tfr_moe._compat import tf, tfr
from tfr_moe.config import load_config, make_config
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.errors import UserError
from tfr_moe.evaluation.evaluate import evaluate_run, evaluate_runs
from tfr_moe.evaluation.results import evaluate_lists
from tfr_moe.metrics.per_list import ListBatch
from tfr_moe.schema import MASK
from tfr_moe.training import RankingPipeline, load_run, train
from tfr_moe.training.callbacks import DefinedLogs, gate_warnings
from tfr_moe.training.run import warn_of_one_task

QUIET = Console(quiet=True)
TASK_SETTINGS = {
    "purchase": {"conditioned_on": "click", "weight": 2.0, "score_weight": 5.0},
    "click": {"loss": "softmax_loss", "metrics": ["session_auc", "ndcg_3"]},
}


def config(**settings):
    return small_config({"model": "mmoe", "tower_hidden_dims": (4,), **SMALL}, **settings)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data_folder(tmp_path_factory.mktemp("data") / "set", schema=TASKS)


@pytest.mark.parametrize(
    ("model", "settings", "schema", "warned"),
    [
        ("mmoe", {}, TASKS, False),
        ("mmoe", {}, SCHEMA, True),
        ("moe", {}, SCHEMA, False),
    ],
)
def test_a_model_of_tasks_on_a_single_label_is_warned_of(model, settings, schema, warned):
    output = io.StringIO()
    console = Console(file=output, width=80)
    warn_of_one_task(make_config({"model": model, **settings}), schema, console)
    line = (
        "warning: model mmoe is for several tasks, and purchase is the only label: add labels to "
        "the schema or choose a model of one task\n"
    )
    assert output.getvalue() == (line if warned else "")


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "mmoe"
    train(data, path, config(tasks=TASK_SETTINGS, num_epochs=4), QUIET)
    return path


def history(run):
    return json.loads((run / "history.json").read_text())


def test_each_task_has_its_loss_weight_and_metrics(run):
    first = history(run)[0]
    assert first["loss"] == pytest.approx(first["click_loss"] + 2 * first["purchase_loss"], 1e-4)
    of_tasks = {n for n in first if n.startswith(("val_click_", "val_purchase_"))}
    assert of_tasks == {
        "val_click_loss", "val_purchase_loss", "val_click_session_auc", "val_click_ndcg_3",
        "val_purchase_session_auc", "val_purchase_ndcg",
    }  # fmt: skip


def test_a_shared_metric_is_shown_and_monitored_as_its_mean(run):
    for entry in history(run):
        of_tasks = entry["val_click_session_auc"], entry["val_purchase_session_auc"]
        assert entry["val_session_auc"] == pytest.approx(sum(of_tasks) / 2)
        assert entry["val_ndcg"] == entry["val_purchase_ndcg"]
    result = load_run(run).metrics
    assert result["monitor"] == "val_session_auc"
    assert result["best"]["val_session_auc"] == max(e["val_session_auc"] for e in history(run))


def test_both_tasks_are_learned(run):
    last = history(run)[-1]
    assert last["val_click_session_auc"] > 0.75
    assert last["val_purchase_session_auc"] > 0.75


def test_gates_and_experts_are_shown_by_task_in_training_only(run):
    first = history(run)[0]
    names = {"gate_entropy_click", "dead_experts_purchase", "busiest_share_click"}
    assert names <= set(first)
    assert not [name for name in first if name.startswith(("val_gate", "val_expert"))]


def test_a_loaded_run_gives_one_score_per_task_and_a_combined_one(run, data):
    loaded = load_run(run)
    assert [task.name for task in loaded.tasks] == ["purchase", "click"]
    features, _, _ = next(
        iter(ElwcDatasetBuilder(DataFolder(data)).build_evaluation_dataset("test"))
    )
    scores, ranked = loaded.model(features), loaded.served_model()(features)
    expected = 5 * tf.sigmoid(scores["purchase"]) + tf.sigmoid(scores["click"])
    np.testing.assert_allclose(ranked["scores"], expected, rtol=1e-5)
    valid = features[MASK].numpy()
    assert (scores["purchase"].numpy()[valid] < scores["click"].numpy()[valid]).all()


def test_an_evaluation_judges_each_task_by_its_label(run, data):
    actual = evaluate_run(DataFolder(data), run, "test", ["session_auc", "ndcg"])
    assert list(actual.values) == [
        "purchase_session_auc", "purchase_ndcg", "click_session_auc", "click_ndcg",
    ]  # fmt: skip
    builder = ElwcDatasetBuilder(DataFolder(data), tasks=["click"])
    model = load_run(run).model
    alone = evaluate_lists(
        (
            ListBatch(
                scores=model(features)["click"].numpy(),
                labels=labels["click"].numpy(),
                mask=features[MASK].numpy(),
                list_ids=extras["query_id"].numpy().ravel().astype(str),
            )
            for features, labels, extras in builder.build_evaluation_dataset("test")
        ),
        ["ndcg"],
    )
    np.testing.assert_allclose(actual.metric("click_ndcg"), alone.metric("ndcg"))


def test_runs_with_and_without_tasks_are_compared_on_all_labels(run, data):
    settings = {"model": "dnn", "num_epochs": 1, "metrics": ["session_auc"]}
    dnn = run.with_name("dnn")
    train(data, dnn, config(**settings), QUIET)
    actual = evaluate_runs(data, [run], baseline=dnn, metrics=["session_auc"], console=QUIET)
    assert actual.metrics == ("purchase_session_auc", "click_session_auc")
    assert list(actual.models) == ["dnn", "mmoe", "mmoe (combined)"]
    assert set(actual.comparisons) == {"mmoe", "mmoe (combined)"}


class KilledError(Exception):
    """Stands for the end of a process."""


def test_an_interrupted_run_goes_on_and_stops_early_on_the_metric_of_a_task(
    data, tmp_path, monkeypatch
):
    settings = config(
        model="shared_bottom",
        learning_rate=1e-9,
        num_epochs=9,
        early_stopping_patience=2,
        monitor="click_ndcg",
        metrics=("ndcg",),
    )
    run = tmp_path / "run"
    build = RankingPipeline.build_callbacks

    class Kill(tf.keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                raise KilledError

    monkeypatch.setattr(RankingPipeline, "build_callbacks", lambda self: [*build(self), Kill()])
    with pytest.raises(KilledError):
        train(data, run, settings, QUIET)
    monkeypatch.undo()
    before = history(run)
    assert len(before) == 1
    result = train(data, run, settings, QUIET)
    assert history(run)[0] == before[0]
    assert result["monitor"] == "val_click_ndcg"
    assert result["epochs"] == result["best_epoch"] + 2 < 9


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"tasks": ["click", "cart"]},
            "tasks: 'cart' is not a label of the data; allowed: purch",
        ),
        ({"monitor": "mrr"}, "monitor must be loss or one of session_auc, ndcg, .*got 'mrr'"),
        ({"tasks": {"click": {"loss": "foo"}, "purchase": {}}}, "loss 'foo' is unknown"),
        ({"tasks": {"click": {"metrics": ["foo"]}, "purchase": {}}}, "'foo'"),
    ],
)
def test_what_does_not_fit_the_data_is_rejected_before_training(data, tmp_path, settings, message):
    with pytest.raises(UserError, match=message):
        train(data, tmp_path / "run", config(**settings), QUIET)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tasks": ["click"]}, "tasks must be 2 labels or more, got click"),
        (
            {"tasks": {"a": {"conditioned_on": "b"}, "c": {}}},
            "tasks.a.conditioned_on: 'b' is not a task",
        ),
        ({"tasks": {"a": {"wait": 1}, "c": {}}}, "tasks: a: wait: unknown key"),
        ({"model": "dnn", "tasks": ["a", "b"]}, "tasks is not used by model 'dnn'"),
        ({"expert_hidden_dims": ()}, "expert_hidden_dims must have a layer for mmoe"),
    ],
)
def test_what_does_not_hold_together_is_rejected(settings, message):
    with pytest.raises(UserError, match=message):
        config(**settings)


def test_tasks_survive_a_file_and_may_be_a_list_of_names(tmp_path):
    settings = config(tasks=TASK_SETTINGS)
    settings.save(tmp_path / "config.yaml")
    assert load_config(tmp_path / "config.yaml") == settings
    named = load_config(overrides=["model=mmoe", "tasks=[click, purchase]"])
    assert list(named.multi_task.tasks or ()) == ["click", "purchase"]


def test_logs_have_means_over_tasks_and_nothing_that_is_no_number():
    tasks = config(tasks=["purchase", "click"], metrics=("ndcg",), monitor="loss").tasks_over(TASKS)
    logs = {"val_click_ndcg": 0.5, "val_purchase_ndcg": math.nan, "val_hsc": math.nan}
    DefinedLogs(tasks).on_epoch_end(0, logs)
    assert logs == {"val_click_ndcg": 0.5, "val_ndcg": 0.5}
    logs = {"loss": math.nan, "click_ndcg": 0.25, "purchase_ndcg": 0.75}
    DefinedLogs(tasks).on_epoch_end(1, logs)
    assert math.isnan(logs.pop("loss"))
    assert logs == {"click_ndcg": 0.25, "purchase_ndcg": 0.75, "ndcg": 0.5}


def test_warnings_name_the_gate_that_collapsed():
    settings = config(num_experts=4)
    quiet = {"gate_entropy_click": 1.0, "busiest_share_click": 0.5, "dead_experts_click": 0.0}
    assert gate_warnings(quiet, settings) == {}
    actual = gate_warnings(
        {
            **quiet,
            "gate_entropy_buy": 0.01,
            "busiest_share_buy": 0.99,
            "dead_experts_buy": 3.0,
            "gate_entropy_view": math.log(4),
        },
        settings,
    )
    assert set(actual) == {"collapsed_buy", "dead_buy", "uniform_view"}
    assert (
        "the gate of buy has collapsed: one expert gets 99% of its weight"
        in actual["collapsed_buy"]
    )
    assert "3 of 4 experts" in actual["dead_buy"]
    assert "the gate of view is near uniform over its 4 experts" in actual["uniform_view"]


def test_a_run_of_tasks_is_one_of_tensorflow_rankings_multi_task_pipeline():
    assert issubclass(RankingPipeline, tfr.keras.pipeline.MultiTaskPipeline)
