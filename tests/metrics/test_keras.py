import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from tests.evaluation.lists import random_batch
from tfr_moe import metrics
from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.evaluation.results import evaluate_lists, summarize
from tfr_moe.metrics import MAP, MRR, NDCG, Precision, SessionAUC
from tfr_moe.metrics.per_list import resolve

OURS = (
    "session_auc",
    "session_auc_shown_10",
    "session_auc_shown_3",
    "ndcg",
    "ndcg_shown_10",
    "ndcg_shown_3",
    "ndcg_4",
    "mrr",
    "mrr_2",
    "map",
    "map_10",
    "precision_5",
)


def keras_inputs(batch):
    """y_true with -1 and y_pred with high scores at padded places."""
    labels = np.where(batch.mask, batch.labels, -1.0).astype(np.float32)
    return labels, np.where(batch.mask, batch.scores, 99.0).astype(np.float32)


def in_record_order(batch):
    """Scores as float32, as Keras sees them, and positions in record order."""
    positions = np.cumsum(batch.mask, axis=1)
    scores = batch.scores.astype(np.float32)
    return dataclasses.replace(batch, scores=scores, positions=positions)


def result_of(metric, y_true, y_pred, **kwargs):
    metric.update_state(y_true, y_pred, **kwargs)
    return float(metric.result())


@pytest.mark.parametrize("name", ["prm_precision_4", "prm_map_4"])
@pytest.mark.parametrize("tied", [False, True])
def test_metrics_over_all_lists_equal_the_offline_evaluation(name, tied):
    batch = in_record_order(random_batch(np.random.default_rng(1), lists=300, tied=tied))
    summary = summarize(evaluate_lists([batch], [name]))[name]
    assert summary.evaluated == 300
    actual = result_of(metrics.get(name), *keras_inputs(batch))
    assert actual == pytest.approx(summary.mean, rel=2e-6)


@pytest.mark.smoke
@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("tied", [False, True])
def test_equals_the_offline_evaluation(name, tied):
    batch = in_record_order(random_batch(np.random.default_rng(1), lists=300, tied=tied))
    summary = summarize(evaluate_lists([batch], [name]))[name]
    assert 100 < summary.evaluated < 300
    # The sum of 300 float32 values.
    assert result_of(metrics.get(name), *keras_inputs(batch)) == pytest.approx(
        summary.mean, rel=2e-6
    )


@pytest.mark.parametrize("name", OURS)
def test_the_same_lists_in_other_batches_give_the_same_number(name):
    y_true, y_pred = keras_inputs(random_batch(np.random.default_rng(2), lists=60, tied=True))
    # The first batches have nothing relevant at all.
    y_true[:7] = np.minimum(y_true[:7], 0.0)
    whole, parts = metrics.get(name), metrics.get(name)
    whole.update_state(y_true, y_pred)
    for start, stop in [(0, 1), (1, 7), (7, 40), (40, 41), (41, 60)]:
        width = max(1, int((y_true[start:stop] >= 0).any(axis=0).nonzero()[0].max()) + 1)
        parts.update_state(y_true[start:stop, :width], y_pred[start:stop, :width])
    assert float(parts.result()) == pytest.approx(float(whole.result()), rel=1e-6)


def test_auc_worked_out_by_hand():
    # First list: relevant 2.0 against 3.0 (wrong) and 2.0 (half): 1/4. Second: right: 1.
    y_true = [[0.0, 1.0, 0.0, -1.0], [2.0, -1.0, 0.0, -1.0]]
    y_pred = [[3.0, 2.0, 2.0, 9.0], [1.0, 5.0, 0.5, 9.0]]
    assert result_of(SessionAUC(), y_true, y_pred) == pytest.approx((0.25 + 1.0) / 2)


def test_shown_takes_the_first_valid_items_of_the_record():
    y_true, y_pred = [[-1.0, 1.0, 0.0, 0.0]], [[9.0, 2.0, 1.0, 3.0]]
    assert result_of(SessionAUC(shown=2), y_true, y_pred) == 1.0
    assert result_of(SessionAUC(), y_true, y_pred) == 0.5


def test_ndcg_worked_out_by_hand():
    # Grades 0, 2, 1 in the order of the scores; the list of zeros is skipped.
    expected = (3 / np.log2(3) + 1 / 2) / (3 + 1 / np.log2(3))
    y_true, y_pred = [[2.0, 1.0, 0.0], [0.0, 0.0, 0.0]], [[2.0, 1.0, 3.0], [3.0, 2.0, 1.0]]
    assert result_of(metrics.get("ndcg"), y_true, y_pred) == pytest.approx(expected, rel=1e-6)


def test_ndcg_of_labels_beyond_float32_is_that_of_labels_with_the_same_distance():
    y_pred = [[2.0, 1.0, 3.0]]
    high = result_of(metrics.get("ndcg"), [[130.0, 129.0, 128.0]], y_pred)
    assert high == pytest.approx(result_of(metrics.get("ndcg"), [[30.0, 29.0, 28.0]], y_pred))


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("label", [0.0, -1.0])
def test_the_result_is_undefined_on_lists_without_relevant_items(name, label):
    assert np.isnan(result_of(metrics.get(name), [[label] * 6], [[1.0] * 6]))


@pytest.mark.parametrize("name", OURS)
def test_ties_are_broken_the_same_way_every_time(name):
    y_true, y_pred = keras_inputs(random_batch(np.random.default_rng(3), tied=True))
    y_pred = np.zeros_like(y_pred)
    assert len({result_of(metrics.get(name), y_true, y_pred) for _ in range(5)}) == 1


def test_auc_of_infinite_scores_counts_only_irrelevant_items():
    inf = float("inf")
    assert result_of(SessionAUC(), [[1.0, 0.0, 1.0, -1.0]], [[inf, 1.0, -inf, inf]]) == 0.5
    assert result_of(SessionAUC(), [[1.0, 0.0, 0.0, -1.0]], [[inf, inf, 0.0, inf]]) == 0.75


def test_weights_weigh_lists_and_zero_drops_items():
    y_true, y_pred = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]]
    # AUC of the lists: 1 and 1/2.
    for weight in ([3.0, 1.0], [[3.0], [1.0]]):
        got = result_of(SessionAUC(), y_true, y_pred, sample_weight=weight)
        assert got == pytest.approx((3 * 1 + 1 * 0.5) / 4)
    # Without the first item of the second list its AUC is 1 as well.
    weight = [[1.0, 1.0, 1.0], [0.0, 1.0, 1.0]]
    assert result_of(SessionAUC(), y_true, y_pred, sample_weight=weight) == 1.0


@pytest.mark.parametrize("name", ["session_auc_shown_5", "ndcg_shown_5", "map_10"])
@pytest.mark.parametrize("compiled", [False, True])
def test_runs_in_a_graph_and_under_xla(name, compiled):
    y_true, y_pred = keras_inputs(random_batch(np.random.default_rng(4)))
    expected = result_of(metrics.get(name), y_true, y_pred)
    metric = metrics.get(name)

    @tf.function(jit_compile=compiled)
    def update(labels, scores):
        metric.update_state(labels, scores)

    update(y_true, y_pred)
    assert float(metric.result()) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_scores_are_evaluated_in_float32(policy):
    y_true, y_pred = keras_inputs(random_batch(np.random.default_rng(5), lists=200))
    half = tf.cast(y_pred, policy.removeprefix("mixed_"))
    expected = result_of(SessionAUC(), y_true, tf.cast(half, tf.float32))
    tf.keras.mixed_precision.set_global_policy(policy)
    try:
        metric = SessionAUC()
        assert result_of(metric, y_true, half) == pytest.approx(expected, rel=1e-6)
        assert all(variable.dtype == tf.float32 for variable in metric.variables)
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")


@pytest.mark.parametrize("name", OURS)
def test_config_round_trip_keeps_name_and_value(name):
    metric = metrics.get(name)
    config = tf.keras.utils.serialize_keras_object(metric)
    copy = tf.keras.utils.deserialize_keras_object(config)
    assert type(copy) is type(metric)
    assert copy.get_config() == metric.get_config()
    assert copy.name == name
    inputs = keras_inputs(random_batch(np.random.default_rng(6)))
    assert result_of(copy, *inputs) == result_of(metric, *inputs)


REPLICAS = """
from tfr_moe._compat import tf
from tfr_moe import metrics
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    metric = metrics.get("session_auc")
labels = tf.constant([[1.0, 0.0, 0.0]] * 2 + [[0.0, 0.0, 0.0]] + [[0.0, 1.0, -1.0]])
scores = tf.constant([[3.0, 2.0, 1.0], [2.0, 3.0, 1.0], [3.0, 2.0, 1.0], [3.0, 2.0, 9.0]])
data = tf.data.Dataset.from_tensor_slices((labels, scores)).batch(4)
for pair in strategy.experimental_distribute_dataset(data):
    strategy.run(lambda y, s: (metric.update_state(y, s), 0)[1], args=pair)
print(strategy.num_replicas_in_sync, float(metric.result()))
"""


def test_replicas_add_up_to_one_mean():
    done = subprocess.run(
        [sys.executable, "-c", REPLICAS], capture_output=True, text=True, check=True
    )
    # AUCs 1 and 1/2 on the first replica, none and 0 on the second: 1.5 / 3, not (0.75 + 0) / 2.
    assert done.stdout.split() == ["2", "0.5"]


def test_fit_reports_what_the_offline_evaluation_finds():
    tf.keras.utils.set_random_seed(0)
    batch = in_record_order(random_batch(np.random.default_rng(8), lists=48))
    y_true, scores = keras_inputs(batch)
    inputs = tf.keras.Input([17, 1])
    outputs = tf.keras.layers.Flatten()(tf.keras.layers.Dense(1)(inputs))
    model = tf.keras.Model(inputs, outputs)
    names = ["session_auc", "ndcg_10", "precision_5"]
    model.compile("sgd", "mse", metrics=[metrics.get(name) for name in names])
    x = scores[..., None]
    logs = model.evaluate(x, y_true, batch_size=7, verbose=0, return_dict=True)
    scored = dataclasses.replace(batch, scores=model.predict(x, verbose=0))
    for name in names:
        assert logs[name] == pytest.approx(np.nanmean(resolve(name)(scored)), rel=1e-5)


def test_every_name_makes_a_metric_of_that_name():
    for name in metrics.names():
        metric = metrics.get(name)
        assert metric.name == name
        assert np.isfinite(result_of(metric, [[1.0, 0.0, -1.0]], [[0.1, 0.2, 0.3]]))
        assert "/" not in name


@pytest.mark.parametrize("name", ["accuracy", "ndcg_0", "arp_5", "auc", ""])
def test_an_unknown_name_is_refused_and_the_names_listed(name):
    with pytest.raises(UserError, match=r"ndcg, ndcg_k, .*precision_k") as caught:
        metrics.get(name)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("cut", ["k", "shown"])
def test_a_cutoff_below_one_is_named(cut):
    with pytest.raises(ValueError, match=rf"{cut} must be >= 1 or None. Received: {cut}=0"):
        NDCG(**{cut: 0})


def test_classes_have_the_usual_cutoffs_and_names():
    names = [metric().name for metric in (SessionAUC, NDCG, MRR, MAP, Precision)]
    assert names == ["session_auc", "ndcg_10", "mrr", "map_10", "precision_5"]
    assert NDCG(k=None).name == "ndcg"
    assert NDCG(k=None, shown=10).name == "ndcg_shown_10"
    assert MAP(3, "click_map").get_config()["k"] == 3
