"""Every loss trains a model; those that know the highest grade find it in the data."""

import numpy as np
import pytest
import yaml
from rich.console import Console

from tests import tiny
from tfr_moe import losses
from tfr_moe._compat import tf
from tfr_moe.config import applicable
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.errors import UserError
from tfr_moe.evaluation.evaluate import evaluate_runs
from tfr_moe.layers.outputs import expected_grade
from tfr_moe.serving.export import export_run
from tfr_moe.training import load_run, train
from tfr_moe.training.run import highest_label, make_scorer, weights_path, with_max_label
from tfr_moe.utils.io import read_json

QUIET = Console(quiet=True)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("graded") / "set"
    return tiny.write_data_folder(path, lists=tiny.graded_lists)


def config(**settings):
    shared = {"model": "dnn", **tiny.SMALL, "monitor": "ndcg", "metrics": ["ndcg"]}
    return tiny.small_config(shared, **settings)


@pytest.mark.parametrize("name", sorted({*losses.LOSSES} - {"ordinal"}))
def test_the_gradient_of_a_loss_finds_the_feature_that_orders_the_items(name):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, [40, 6]).astype(np.float32)
    features = rng.normal(size=[40, 6, 3]).astype(np.float32)
    features[..., 0] = labels
    weights, bias = tf.Variable(tf.zeros([3])), tf.Variable(0.0)
    loss, optimizer = losses.get(name, max_label=3), tf.keras.optimizers.legacy.Adam(0.1)
    for _ in range(40):
        with tf.GradientTape() as tape:
            value = loss(labels, tf.linalg.matvec(features, weights) + bias)
        gradients = tape.gradient(value, [weights, bias], unconnected_gradients="zero")
        optimizer.apply_gradients(zip(gradients, [weights, bias], strict=True))
    first, *others = weights.numpy()
    assert first > 5 * np.abs(others).max()


@pytest.fixture(scope="module")
def runs(data, tmp_path_factory):
    """A run of each loss of grades."""
    folder = tmp_path_factory.mktemp("runs")
    for loss in losses.GRADED:
        train(data, folder / loss, config(loss=loss, num_epochs=4), QUIET)
    return folder


@pytest.mark.parametrize("loss", losses.GRADED)
def test_a_model_learns_grades(loss, runs):
    # In random order the NDCG of these lists is 0.68.
    assert read_json(runs / loss / "metrics.json")["best"]["val_ndcg"] > 0.78


def test_the_highest_grade_is_that_of_the_training_lists(data):
    assert highest_label(DataFolder(data), ["purchase"]) == 3


def test_a_warm_start_keeps_the_highest_grade_of_its_run(data, ordinal_run, tmp_path):
    lower = tiny.write_data_folder(tmp_path / "set", 8, 4, 4)
    assert highest_label(DataFolder(lower), ["purchase"]) == 1
    actual = with_max_label(DataFolder(lower), config(loss="ordinal"), ordinal_run)
    assert actual.objective.max_label == 3
    assert with_max_label(DataFolder(lower), config(loss="ordinal")).objective.max_label == 1


@pytest.fixture(scope="module")
def ordinal_run(runs):
    return runs / "ordinal"


def test_the_grade_that_was_found_is_written_down(ordinal_run):
    assert yaml.safe_load((ordinal_run / "config.yaml").read_text())["max_label"] == 3


def test_a_run_of_levels_scores_by_their_sum(ordinal_run, data):
    loaded = load_run(ordinal_run)
    features, *_ = next(iter(ElwcDatasetBuilder(DataFolder(data)).build_evaluation_dataset("test")))
    levels = make_scorer(DataFolder(ordinal_run), loaded.config).build_model()
    weights = weights_path(ordinal_run, loaded.metrics["best_epoch"])
    levels.load_weights(str(weights)).expect_partial()
    logits = levels(features)
    assert logits.shape[-1] == 3
    np.testing.assert_allclose(loaded.model(features), expected_grade(logits), rtol=1e-6)


def test_validation_while_training_agrees_with_the_evaluation(ordinal_run, data):
    actual = evaluate_runs(data, [ordinal_run], split="validation", metrics=["ndcg"], console=QUIET)
    best = load_run(ordinal_run).metrics["best"]["val_ndcg"]
    np.testing.assert_allclose(actual.models["ordinal"]["ndcg"].mean, best, rtol=1e-4)


def test_a_run_of_levels_is_exported(ordinal_run, tmp_path):
    # The export compares its scores with the model's in a fresh process.
    assert (export_run(ordinal_run, tmp_path / "shop", console=QUIET) / "saved_model.pb").is_file()


def test_a_context_aware_model_has_an_output_for_each_level(data):
    settings = {"attention_blocks": 1, "attention_dim": 8, "attention_heads": 1, "max_label": 3}
    settings = applicable("context_aware", {**settings, "attention_hidden_dim": 8})
    loss = {"model": "context_aware", "loss": "ordinal"}
    scorer = make_scorer(DataFolder(data), config(**loss, **settings))
    assert scorer.build_model().output.shape[-1] == 3


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "adv_hsc_moe", "loss": "ordinal"},
        {"model": "mmoe", "tasks": {"a": {"loss": "ordinal"}, "b": {}}},
    ],
)
def test_other_models_have_no_output_for_each_level(settings):
    message = rf"loss ordinal is for dnn, wide_dnn, mlp, context_aware, not for {settings['model']}"
    with pytest.raises(UserError, match=message):
        config(**settings)


def test_a_graded_loss_needs_the_highest_grade():
    with pytest.raises(UserError, match="loss 'rmse' needs max_label"):
        losses.get("rmse")
