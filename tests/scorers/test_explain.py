"""Which experts made a score."""

import numpy as np
import pytest

from tests.scorers.batch import SMALL, TABLES, raw_batch
from tests.tiny import SCHEMA
from tfr_moe._compat import tf
from tfr_moe.schema import MASK
from tfr_moe.scorers import create, explanation_model

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
    """The towers of the named experts, weighed as said, give the score again."""
    model = create("moe", SCHEMA, TABLES, GATED).build_model()
    inputs = raw_batch()
    explained = explanation_model(model)(inputs)
    vectors = tf.keras.Model(model.input, model.get_layer("features").output.items)(inputs)
    towers = model.get_layer("mixture").towers
    each = towers(vectors, explained["expert_ids"], mask=inputs[MASK])
    mixed = tf.reduce_sum(each * explained["expert_weights"][:, tf.newaxis, :], axis=-1)
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
