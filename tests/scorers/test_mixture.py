"""What the gate of a mixture sees, and which schemas and settings allowed no mixtures for."""

import numpy as np
import pytest

from tests.scorers.batch import SMALL, TABLES, WIDTH, raw_batch, without_hierarchy
from tests.tiny import SCHEMA
from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.schema import MASK
from tfr_moe.scorers import MixtureScorer, explanation_model

GATED = {**SMALL, "num_experts": 6, "top_k": 2, "num_adversarial": 1}


def model_of(**settings):
    return MixtureScorer(SCHEMA, TABLES, **{**GATED, **settings}).build_model()


def gate_width(model):
    return model.get_layer("mixture").inference_gate.kernel.shape[0]


@pytest.mark.parametrize(
    ("gate_features", "width"),
    [(None, 4), (("sub",), 4), (("top", "sub"), 8), (("sub", "age"), 5), (("all",), WIDTH)],
)
def test_the_gate_sees_the_features_that_are_named(gate_features, width):
    assert gate_width(model_of(gate_features=gate_features)) == width


def chosen(model, inputs):
    return explanation_model(model)(inputs)["expert_ids"]


def test_by_default_the_sub_category_alone_chooses():
    """Two lists of one category share their experts, whatever else differs."""
    model = model_of()
    # 16 weights fill the vectors of a processor: it may round what is left over in another way.
    inputs = raw_batch(batch=8)
    inputs["top"] = tf.constant([["a"]] * 4 + [["b"]] * 4)
    inputs["sub"] = tf.constant([["x"]] * 8)
    weights = explanation_model(model)(inputs)["expert_weights"].numpy()
    assert (weights[:4] == weights[0]).all()
    assert (weights[4:] == weights[4]).all()
    # The same name under the other parent is another category.
    assert np.abs(weights[0] - weights[4]).max() > 0


def test_a_gate_of_lists_chooses_for_the_list_and_a_gate_of_all_features_for_each_item():
    inputs = raw_batch(batch=5, size=4)
    assert chosen(model_of(), inputs).shape == [5, 2]
    assert chosen(model_of(gate_features=("all",)), inputs).shape == [5, 4, 2]


def test_the_constraint_gate_sees_the_top_category():
    layer = model_of().get_layer("mixture")
    assert layer.constraint_gate.kernel.shape == [4, 6]


def test_unknown_and_missing_categories_share_the_row_out_of_vocabulary():
    model = model_of()
    inputs = raw_batch()
    scores = []
    for top, sub in (("a", "unheard of"), ("a", "")):
        inputs["top"] = tf.fill([5, 1], top)
        inputs["sub"] = tf.fill([5, 1], sub)
        scores.append(model(inputs).numpy())
    np.testing.assert_array_equal(scores[0], scores[1])
    assert np.isfinite(scores[0]).all()


def test_padded_items_score_zero_whatever_they_hold():
    model, inputs = model_of(), raw_batch()
    mask = inputs[MASK].numpy()
    clean = model(inputs).numpy()
    assert (clean[~mask] == 0).all()
    numbers = np.where(mask[..., np.newaxis], inputs["example_numeric"], 1e30)
    inputs["example_numeric"] = tf.constant(numbers, tf.float32)
    inputs["brand"] = tf.where(mask[..., np.newaxis], inputs["brand"], "unheard of")
    np.testing.assert_array_equal(model(inputs), clean)


@pytest.mark.parametrize("settings", [{}, {"gate_features": ("age",)}, {"hsc_weight": None}])
def test_a_mixture_over_a_schema_without_hierarchy_is_rejected(settings):
    with pytest.raises(UserError, match="a mixture needs `hierarchy` with its child and parent"):
        MixtureScorer(without_hierarchy(), TABLES, **GATED, **settings)


def test_without_hierarchy_a_gate_of_named_features_needs_no_constraint():
    tables = TABLES._replace(vocabularies={**TABLES.vocabularies, "sub": ["x", "y", "z"]})
    model = MixtureScorer(
        without_hierarchy(),
        tables,
        **GATED,
        gate_features=("sub", "top"),
        hsc_weight=None,
        gate_residual=False,
    ).build_model()
    assert model(raw_batch()).shape == [5, 4]


@pytest.mark.parametrize("gate_features", [("brand",), ("sub", "all"), ("nothing",)])
def test_what_is_no_context_feature_is_rejected_by_name(gate_features):
    with pytest.raises(UserError, match=r"gate_features: '\w+' is not a context feature; allowed"):
        MixtureScorer(SCHEMA, TABLES, gate_features=gate_features)


def test_a_gate_of_no_feature_is_rejected():
    with pytest.raises(UserError, match="gate_features: must not be empty; allowed: top, sub,"):
        MixtureScorer(SCHEMA, TABLES, gate_features=())
