"""Multi-task scorers: what their models return, budgets, errors."""

import numpy as np
import pytest

from tests.scorers.batch import SMALL, TABLES, raw_batch, without_hierarchy
from tests.tiny import TASKS
from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.schema import MASK
from tfr_moe.scorers import CategoryMMoEScorer, MultiTaskScorer, combined_model, create


def test_a_model_of_two_labels_gives_a_dict_whose_outputs_bear_their_names():
    model = MultiTaskScorer(TASKS, TABLES, **SMALL).build_model()
    assert sorted(model.output_names) == ["click", "purchase"]
    scores = model(raw_batch())
    assert {name: score.shape.as_list() for name, score in scores.items()} == {
        "click": [5, 4],
        "purchase": [5, 4],
    }


def test_with_a_conversion_a_purchase_is_never_likelier_than_its_click():
    tasks = {"purchase": "click", "click": None}
    free = MultiTaskScorer(TASKS, TABLES, tasks=dict.fromkeys(tasks), **SMALL).build_model()
    tied = MultiTaskScorer(TASKS, TABLES, tasks=tasks, **SMALL).build_model()
    tied.set_weights(free.get_weights())
    batch = raw_batch()
    valid = batch[MASK].numpy()
    p = {name: tf.sigmoid(s).numpy()[valid] for name, s in tied(batch).items()}
    towers = {name: tf.sigmoid(s).numpy()[valid] for name, s in free(batch).items()}
    np.testing.assert_allclose(p["click"], towers["click"], rtol=1e-5)
    np.testing.assert_allclose(p["purchase"], towers["click"] * towers["purchase"], rtol=1e-5)
    assert (tied(batch)["purchase"].numpy()[~valid] == 0).all()


def test_the_combined_model_shares_the_variables_and_keeps_the_scores():
    model = MultiTaskScorer(TASKS, TABLES, **SMALL).build_model()
    served = combined_model(model, {"purchase": 3.0, "click": 0.5}, "logit")
    assert all(a is b for a, b in zip(served.weights, model.weights, strict=True))
    scores, actual = model(raw_batch()), served(raw_batch())
    assert set(actual) == {"scores", "scores_click", "scores_purchase"}
    np.testing.assert_array_equal(actual["scores_click"], scores["click"])
    np.testing.assert_allclose(
        actual["scores"], 3 * scores["purchase"] + 0.5 * scores["click"], rtol=1e-5, atol=1e-6
    )


def test_names_take_their_settings_from_a_run():
    settings = {**SMALL, "num_experts": 3, "top_k": 2, "l2_weight": 0.5, "tasks": None}

    def layer(name):
        return create(name, TASKS, TABLES, settings).build_model().get_layer(name).get_config()

    assert layer("l2_constrained")["l2_weight"] == 0.5
    assert layer("omoe")["num_experts"] == 3
    expected = {
        "num_experts": 3,
        "top_k": 2,
        "hsc_weight": 1e-3,
        "gate_learning_rate_multiplier": 1.0,
        "noisy_gate": True,
    }
    gated = layer("category_mmoe")
    assert {name: gated[name] for name in expected} == expected


def test_a_misspelt_setting_of_the_network_is_an_error():
    with pytest.raises(TypeError, match="num_expert"):
        MultiTaskScorer(TASKS, TABLES, num_expert=3)


def test_what_does_not_fit_is_rejected():
    with pytest.raises(UserError, match="network 'moe' is unknown; available: single_task"):
        MultiTaskScorer(TASKS, TABLES, network="moe")
    with pytest.raises(UserError, match="a mixture needs `hierarchy`"):
        CategoryMMoEScorer(without_hierarchy(), TABLES)
    named = TASKS.model_copy(update={"labels": ("purchase", "features")})
    with pytest.raises(UserError, match="'features' is a reserved name"):
        MultiTaskScorer(named, TABLES)
    for name in ("add to cart", "köpt", "_buy"):
        named = TASKS.model_copy(update={"labels": ("purchase", name)})
        with pytest.raises(UserError, match=f"tasks: '{name}' must have ASCII letters"):
            MultiTaskScorer(named, TABLES)
