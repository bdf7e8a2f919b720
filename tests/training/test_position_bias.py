"""Position bias enters the logits in training only, for any model, and never what is served."""

import io
import json

import numpy as np
import pytest
from rich.console import Console
from tensorflow_serving.apis import input_pb2

from tests.tiny import SCHEMA, SMALL, TASKS, graded_lists, small_config, write_data_folder
from tfr_moe import losses, metrics
from tfr_moe._compat import tf
from tfr_moe.config import make_config
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema
from tfr_moe.serving.export import export_run
from tfr_moe.training import load_run, train
from tfr_moe.training.position_bias import (
    bias_by_position,
    check_position_bias,
    log_variation,
    variation_of,
    with_position_bias,
)
from tfr_moe.training.run import make_builder, make_scorer

QUIET = Console(quiet=True)
BIAS = {"position_bias": ["position", "top", "sales"], "position_dropout": 0.0}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "set"
    return DataFolder(write_data_folder(path, 96, 32, 8, schema=TASKS))


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """A run of two tasks, of which everything about runs is tested."""
    run = tmp_path_factory.mktemp("runs") / "run"
    config = small_config(SMALL, model="mmoe", **BIAS, num_epochs=2, metrics=["session_auc"])
    train(data, run, config, QUIET)
    return run


def biased(data, **settings):
    """The model before and with the bias, whose tower is not at zero, and a training batch."""
    config = small_config(SMALL, **BIAS, **settings)
    model = make_scorer(data, config).build_model()
    both = with_position_bias(model, data, config)
    kernel = both.bias.get_layer("position_bias_tower").output_kernel
    kernel.assign(np.random.default_rng(0).normal(size=kernel.shape))
    features, _ = next(iter(make_builder(data, config).build_train_dataset()))
    return model, both, features


def without_position(features):
    return {name: value for name, value in features.items() if name != "position"}


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "adv_hsc_moe", "noisy_gate": False},
        {"model": "prm_base", "dropout": 0.0},
        {"model": "star", "unknown_share": 0.0},
        {"model": "dnn", "loss": "ordinal", "max_label": 3},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_training_scores_are_the_served_ones_plus_the_bias(data, settings):
    model, both, features = biased(data, **settings)
    bias = both.bias(features, training=False).numpy()[..., 0]
    assert np.ptp(bias) > 0.01
    served = model(without_position(features), training=True).numpy()
    in_training = both.biased(features, both(features, training=True), True).numpy()
    expected = served + bias.reshape(bias.shape + (1,) * (served.ndim - 2))
    np.testing.assert_allclose(in_training, expected, atol=1e-5)
    np.testing.assert_array_equal(both(features), model(without_position(features)))


def test_every_task_has_its_bias(data):
    model, both, features = biased(data, model="mmoe")
    served = model(without_position(features))
    in_training = both.biased(features, both(features), True)
    bias = both.bias(features, training=False).numpy()
    for index, task in enumerate(["click", "purchase"]):
        difference = in_training[task].numpy() - served[task].numpy()
        np.testing.assert_allclose(difference, bias[..., index], atol=1e-5)
    assert np.abs(bias[..., 0] - bias[..., 1]).max() > 0.01


@pytest.fixture(scope="module")
def dnn(data):
    """A model with one score, before and with the bias, and a batch."""
    return biased(data, model="dnn")


def test_validation_has_the_bias_in_the_loss_but_not_in_metrics(data, dnn):
    model, both, _ = dnn
    loss, metric = losses.get("sigmoid_cross_entropy"), metrics.get("session_auc")
    both.compile(loss=loss, metrics=[metrics.get("session_auc")], run_eagerly=True)
    batches = ElwcDatasetBuilder(data, 32, with_position=True).build_valid_dataset()
    logged = both.evaluate(batches, return_dict=True, verbose=0)
    features, labels = next(iter(batches))
    scores = model(without_position(features))
    bias = both.bias(features, training=False)[..., 0]
    metric.update_state(labels, scores)
    assert logged["loss"] == pytest.approx(float(loss(labels, scores + bias)), abs=1e-6)
    assert logged["session_auc"] == pytest.approx(float(metric.result()), abs=1e-6)


def test_constant_positions_leave_the_ranking_as_it_is(dnn):
    model, both, features = dnn
    constant = {
        **features,
        "position": tf.fill(tf.shape(features["position"]), 3.0),
        "example_numeric": tf.zeros_like(features["example_numeric"]),
    }
    served = model(without_position(constant)).numpy()
    shift = both.biased(constant, both(constant), True).numpy() - served
    valid = np.where(features["example_list_mask"], shift, np.nan)
    np.testing.assert_allclose(np.nanmax(valid, axis=1), np.nanmin(valid, axis=1), atol=1e-5)


def test_a_run_loads_without_the_bias_and_was_validated_without_it(data, trained):
    loaded = load_run(trained)
    assert "position" not in loaded.model.input
    assert not [v.name for v in loaded.model.variables if "position_bias" in v.name]
    validation = ElwcDatasetBuilder(data, 32, tasks=TASKS.labels).build_valid_dataset()
    metric = metrics.get("session_auc")
    for features, labels in validation:
        metric.update_state(labels["click"], loaded.model(features)["click"])
    best = loaded.metrics["best"]["val_click_session_auc"]
    assert float(metric.result()) == pytest.approx(best, abs=1e-6)


def test_a_run_records_the_bias_by_position(trained):
    curves = json.loads((trained / "metrics.json").read_text())["position_bias"]
    assert set(curves) == {"click", "purchase"}
    for curve in curves.values():
        assert curve["position"] == list(range(1, 9))
        assert curve["bias"][0] == 0.0 != curve["bias"][1]
        # Each of the 96 lists has items at the first two positions.
        assert curve["items"][:2] == [96.0, 96.0]


def test_the_curve_is_the_mean_of_the_terms(data):
    config = small_config(SMALL, model="dnn", position_bias=["position"], max_positions=3)
    model = with_position_bias(make_scorer(data, config).build_model(), data, config)
    layer = model.bias.get_layer("position_bias_tower")
    layer.embeddings.assign(np.outer([9.0, 1.0, 2.0, 4.0], np.ones(16)))
    layer.output_kernel.assign(np.full([16, 1], -0.5))
    curve = bias_by_position(model, data)[""]
    # -8 e_p relative to the first position; later ones share the last embedding.
    assert (curve["position"], curve["bias"]) == ([1, 2, 3], [0.0, -8.0, -24.0])


@pytest.mark.slow
def test_an_exported_model_ignores_positions_and_has_no_bias(data, trained, tmp_path):
    version = export_run(trained, tmp_path / "models" / "m", data.path, None, QUIET)
    assert b"position_bias" not in (version / "saved_model.pb").read_bytes()
    record = next(iter(ElwcDatasetBuilder(data).serialized_lists("test"))).numpy()
    other = input_pb2.ExampleListWithContext.FromString(record)
    for example in other.examples:
        values = example.features.feature["position"].float_list.value
        values[0] = 9.0 - values[0]
    records = [record, other.SerializeToString()]
    assert records[0] != records[1]
    served = tf.saved_model.load(str(version)).signatures["serving_default"]
    scores = served(tf.constant(records))["scores"].numpy()
    np.testing.assert_array_equal(scores[0], scores[1])
    assert np.ptp(scores[0]) > 0


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["place"], "'place' is not the position column or a feature; allowed: position, top, "),
        (["top"], "must contain the position column 'position'"),
    ],
)
def test_unknown_presentation_features_are_rejected(names, message):
    with pytest.raises(UserError, match=message):
        check_position_bias(make_config({"model": "dnn", "position_bias": names}), SCHEMA)


def test_a_schema_without_a_position_is_rejected():
    schema = FeatureSchema.model_validate({**SCHEMA.as_dict(), "position": None})
    with pytest.raises(UserError, match="position_bias: the schema has no `position` column"):
        check_position_bias(make_config({"model": "dnn", **BIAS}), schema)


def test_lightgbm_takes_the_position_alone():
    config = make_config({"model": "lambdamart", "position_bias": ["position", "top"]})
    with pytest.raises(UserError, match="lambdamart supports the position column only"):
        check_position_bias(config, SCHEMA)


def test_variation_is_the_mean_square_within_items_over_the_variance():
    values = np.array(["a", "a", "b", "b", "c", "c"])
    positions = np.array([1.0, 2.0, 1.0, 2.0, 9.0, 9.0])
    # Within: (0.5 + 0.5 + 0) / 3. All: mean 4, squares 9 + 4 + 9 + 4 + 25 + 25 = 76 over 5.
    assert variation_of(values, positions) == (2 / 3, pytest.approx((1 / 3) / (76 / 5)))
    assert variation_of(values[::2], positions[::2])[0] == 0.0


def test_a_log_whose_items_keep_their_positions_is_warned_of(tmp_path):
    def fixed(count, seed):
        for list_id, context, items in graded_lists(count, seed):
            for item in items:
                item["position"] = float(item["brand"][-1]) + 1
            yield list_id, context, sorted(items, key=lambda item: item["position"])

    folder = DataFolder(write_data_folder(tmp_path / "set", 40, 4, 4, lists=fixed))
    text = io.StringIO()
    config = make_config({"model": "dnn", "position_bias": ["position"]})
    log_variation(folder, config, Console(file=text, width=500))
    assert text.getvalue().splitlines() == [
        "position bias: 0% of the values of brand were shown at 2 or more positions; 0% of the "
        "variance of positions is within them",
        "warning: positions hardly vary within items, so that position bias cannot be separated "
        "from relevance: the scores of this run are not unbiased",
        "warning: monitor session_auc is measured on biased clicks; monitor=loss selects the epoch "
        "by the loss with the bias",
    ]
