"""Which experts made a score."""

import numpy as np
import pytest

from tests.scorers.batch import SMALL, TABLES, raw_batch
from tests.tiny import SCHEMA, TASKS
from tfr_moe._compat import tf
from tfr_moe.schema import MASK
from tfr_moe.scorers import combined_model, create, explanation_model, num_experts
from tfr_moe.scorers.base import item_vectors

GATED = {**SMALL, "num_experts": 6, "top_k": 3}


@pytest.mark.parametrize("gate_features", [None, ("top", "age"), ("all",)])
def test_the_explanation_has_the_models_logits_and_weights_that_sum_to_one(gate_features):
    model = create("moe", SCHEMA, TABLES, {**GATED, "gate_features": gate_features}).build_model()
    inputs = raw_batch()
    explained = explanation_model(model)(inputs)
    assert set(explained) == {"logits", "expert_ids", "expert_weights"}
    np.testing.assert_array_equal(explained["logits"], model(inputs))
    lead = [5, 4] if gate_features == ("all",) else [5]
    assert explained["expert_ids"].shape == explained["expert_weights"].shape == [*lead, 3]
    assert explained["expert_ids"].dtype == tf.int32
    weights = explained["expert_weights"].numpy()
    np.testing.assert_allclose(weights.sum(-1), np.ones(lead), rtol=1e-6)
    assert (np.diff(weights, axis=-1) <= 0).all()  # best expert first
    ids = np.sort(explained["expert_ids"], axis=-1)
    assert (np.diff(ids, axis=-1) > 0).all()  # no expert twice


def test_the_explained_experts_make_up_the_logits():
    """The towers of the named experts, weighed as said, and the shared one are the score."""
    model = create("moe", SCHEMA, TABLES, GATED).build_model()
    inputs = raw_batch()
    explained = explanation_model(model)(inputs)
    vectors = tf.keras.Model(model.input, model.get_layer("features").output.items)(inputs)
    towers = model.get_layer("mixture").towers
    each = towers(vectors, explained["expert_ids"], mask=inputs[MASK])
    mixed = tf.reduce_sum(each * explained["expert_weights"][:, tf.newaxis, :], axis=-1)
    mixed += model.get_layer("mixture").shared(vectors, mask=inputs[MASK])
    np.testing.assert_allclose(mixed, explained["logits"], rtol=1e-6)


def test_the_explanation_follows_the_models_weights():
    model = create("moe", SCHEMA, TABLES, GATED).build_model()
    explanation = explanation_model(model)
    inputs = raw_batch()
    for weight in model.trainable_weights:
        weight.assign_add(tf.ones_like(weight))
    np.testing.assert_array_equal(explanation(inputs)["logits"], model(inputs))


@pytest.mark.parametrize("name", ["dnn", "wide_dnn"])
def test_a_model_without_experts_has_no_explanation(name):
    assert explanation_model(create(name, SCHEMA, TABLES, GATED).build_model()) is None


def multi_task(name, **settings):
    """Ranker, explanation and what the latter says of a batch."""
    model = create(name, TASKS, TABLES, {**GATED, **settings}).build_model()
    ranker = model
    if isinstance(model.output, dict):
        ranker = combined_model(model, {"purchase": 2.0, "click": 1.0})
    explanation = explanation_model(ranker)
    return ranker, {k: v.numpy() for k, v in explanation(raw_batch()).items()}


def test_category_mmoe_names_the_experts_of_each_task_once_a_list():
    ranker, actual = multi_task("category_mmoe")
    gates = ranker.get_layer("category_mmoe").gates
    vectors = tf.keras.Model(ranker.input, ranker.get_layer("features").output.context["sub"])
    for gate, task in zip(gates, ("purchase", "click"), strict=True):
        expected = gate(vectors(raw_batch()))
        np.testing.assert_array_equal(actual[f"expert_ids_{task}"], expected.indices)
        np.testing.assert_allclose(actual[f"expert_weights_{task}"], expected.weights, rtol=1e-6)
        assert actual[f"expert_ids_{task}"].shape == (5, 3)
    scores = ranker(raw_batch())
    assert actual.keys() - scores.keys() == {
        f"expert_{what}_{task}" for what in ("ids", "weights") for task in ("purchase", "click")
    }
    for name, score in scores.items():
        np.testing.assert_array_equal(actual[name], score)


def test_mmoe_weighs_all_experts_for_each_item_and_task_heaviest_first():
    ranker, actual = multi_task("mmoe")
    vectors = tf.keras.Model(ranker.input, ranker.get_layer("features").output.items)(raw_batch())
    mask = raw_batch()[MASK].numpy()
    gates = ranker.get_layer("mmoe").gate(tf.boolean_mask(vectors, mask)).numpy()  # [T, tasks, N]
    for index, task in enumerate(("purchase", "click")):
        ids, weights = actual[f"expert_ids_{task}"], actual[f"expert_weights_{task}"]
        assert ids.shape == weights.shape == (5, 4, 6)
        assert (np.diff(weights, axis=-1) <= 0).all()
        by_expert = np.take_along_axis(weights, np.argsort(ids, axis=-1), axis=-1)
        np.testing.assert_allclose(by_expert[mask], gates[:, index], rtol=1e-6)


def test_omoe_has_one_gate_for_all_tasks():
    _, actual = multi_task("omoe")
    assert {n for n in actual if n.startswith("expert")} == {"expert_ids", "expert_weights"}
    np.testing.assert_allclose(
        actual["expert_weights"].sum(-1), raw_batch()[MASK].numpy().astype(float), rtol=1e-6
    )


@pytest.mark.parametrize("num_levels", [1, 2])
def test_the_explained_experts_of_ple_make_up_its_scores(num_levels):
    """Weighted outputs of the routed experts of the last level, scored by the domain's tower."""
    settings = {**SMALL, "expert_hidden_dims": [6, 5], "num_domain_experts": 2}
    model = create("ple", SCHEMA, TABLES, {**settings, "num_levels": num_levels}).build_model()
    inputs = raw_batch()
    explained = {k: v.numpy() for k, v in explanation_model(model)(inputs).items()}
    np.testing.assert_array_equal(explained["logits"], model(inputs))
    mask = inputs[MASK].numpy()
    layer = model.get_layer("ple")
    symbolic = [item_vectors(model), model.get_layer("domains").output]
    vectors, domains = tf.keras.Model(model.input, symbolic)(inputs)
    specific, shared = layer._below_last_level(vectors, domains, inputs[MASK], training=False)
    last = layer.levels[-1]
    of_domains = last.domain_experts.all_experts(tf.boolean_mask(specific, mask), False)
    of_shared = last.shared_experts.all_experts(tf.boolean_mask(shared, mask), False)
    hidden = np.concatenate([of_domains, of_shared], axis=1)
    assert num_experts(model) == hidden.shape[1] == 2 * 3 + 2
    ids, weights = explained["expert_ids"], explained["expert_weights"]
    assert ids.shape == weights.shape == (5, 4, 4)
    assert (np.diff(weights, axis=-1) <= 0).all()
    np.testing.assert_allclose(weights.sum(-1), mask.astype(float), rtol=1e-6)
    domain = np.repeat(domains.numpy(), mask.sum(1))
    for chosen, number in zip(ids[mask], domain, strict=True):
        assert set(chosen) == {2 * number, 2 * number + 1, 6, 7}
    rows = np.arange(len(domain))[:, None]
    mixed = (hidden[rows, ids[mask]] * weights[mask][..., None]).sum(1)
    scores = layer.towers.all_experts(tf.constant(mixed), False).numpy()[rows[:, 0], domain, 0]
    np.testing.assert_allclose(scores, explained["logits"][mask], rtol=1e-5, atol=1e-6)
