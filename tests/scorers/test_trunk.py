"""A self-attention encoder before the towers of any model."""

import numpy as np
import pytest

from tests.scorers.batch import SMALL, TABLES, raw_batch
from tests.tiny import SCHEMA
from tfr_moe._compat import tf
from tfr_moe.config import make_config
from tfr_moe.errors import UserError
from tfr_moe.schema import MASK
from tfr_moe.scorers import create, explanation_model

SETTINGS = {
    **SMALL,
    "num_experts": 6,
    "top_k": 2,
    "trunk": "attention",
    "attention_dim": 8,
    "attention_hidden_dim": 12,
}


def model_of(name, **settings):
    return create(name, SCHEMA, TABLES, {**SETTINGS, **settings}).build_model()


def other_company(inputs, item):
    """The same lists, all numerics but those of one place changed."""
    values = inputs["example_numeric"].numpy()
    changed = values[:, ::-1] * 2 + 1
    changed[:, item] = values[:, item]
    return {**inputs, "example_numeric": tf.constant(changed)}


@pytest.mark.parametrize("name", ["dnn", "wide_dnn", "adv_hsc_moe", "mmoe"])
def test_with_it_a_score_depends_on_the_other_items(name):
    inputs = raw_batch()
    company = other_company(inputs, 0)
    for trunk, differs in (("none", False), ("attention", True)):
        model = model_of(name, trunk=trunk)
        before, after = model(inputs).numpy()[:, 0], model(company).numpy()[:, 0]
        # float32 sums of other rows beside these
        assert (np.abs(after - before).max() > 1e-4) == differs


def test_experts_are_still_chosen_by_the_category():
    inputs = raw_batch()
    first, second = (
        explanation_model(model_of("adv_hsc_moe", trunk=t)) for t in ("none", "attention")
    )
    gate = first.get_layer("mixture").inference_gate.kernel
    second.get_layer("mixture").inference_gate.kernel.assign(gate)
    second.get_layer("features").set_weights(first.get_layer("features").get_weights())
    expected, got = first(inputs), second(inputs)
    np.testing.assert_array_equal(got["expert_ids"], expected["expert_ids"])
    np.testing.assert_allclose(got["expert_weights"], expected["expert_weights"], rtol=1e-6)


def test_the_settings_of_a_run_are_those_of_the_encoder():
    chosen = {
        "trunk": "attention",
        "attention_dim": 12,
        "attention_blocks": 3,
        "attention_heads": 4,
        "attention_hidden_dim": 5,
        "attention_residual": False,
        "positional_encoding": "learned",
        "max_positions": 7,
        "dropout": 0.1,
    }
    config = make_config({"model": "dnn", **chosen})
    scorer = create("dnn", SCHEMA, TABLES, config.model_dump())
    encoder = scorer.build_model().get_layer("trunk").get_config()
    assert (encoder["dim"], encoder["num_blocks"], encoder["num_heads"]) == (12, 3, 4)
    assert (encoder["hidden_dim"], encoder["residual"], encoder["dropout"]) == (5, False, 0.1)
    assert (encoder["positional_encoding"], encoder["max_positions"]) == ("learned", 7)
    assert encoder["seed"] == config.seed


def test_heads_that_do_not_divide_the_width_are_rejected():
    settings = {"model": "dnn", "trunk": "attention", "attention_dim": 10, "attention_heads": 4}
    with pytest.raises(UserError, match="attention_heads must divide attention_dim = 10, got 4"):
        make_config(settings)
    make_config({**settings, "trunk": "none"})
    make_config({**settings, "model": "prm_base"})
    with pytest.raises(UserError, match="attention_heads must divide"):
        make_config({**settings, "model": "context_aware"})


def test_all_padded_lists_score_finitely():
    inputs = raw_batch()
    inputs[MASK] = tf.zeros_like(inputs[MASK])
    np.testing.assert_array_equal(model_of("adv_hsc_moe")(inputs), 0.0)
