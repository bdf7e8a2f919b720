"""PRM and DLCM as models over raw features: what they read, and the order of the list."""

import numpy as np
import pytest

from tests.scorers.batch import RERANKING, TABLES, WIDTH, raw_batch
from tests.tiny import SCHEMA
from tfr_moe._compat import tf
from tfr_moe.config import make_config
from tfr_moe.errors import UserError
from tfr_moe.schema import MASK
from tfr_moe.scorers import PRMScorer, create

PRM = ("prm_base", "prm_personalized")


def model_of(name, **settings):
    return create(name, SCHEMA, TABLES, {**RERANKING, **settings}).build_model()


@pytest.mark.parametrize("name", PRM)
def test_scores_of_prm_are_log_probabilities_of_the_items(name):
    inputs = raw_batch()
    scores, mask = model_of(name)(inputs).numpy(), inputs[MASK].numpy()
    for row, valid in zip(scores, mask, strict=True):
        assert np.exp(row[valid]).sum() == pytest.approx(1.0, abs=1e-5)


def test_prm_base_is_blind_for_the_personalised_vectors():
    inputs = raw_batch()
    values = inputs["example_numeric"].numpy()
    values[..., 1] += 3.0 * np.arange(values.shape[1])  # sales, which stands for the vectors
    changed = {**inputs, "example_numeric": tf.constant(values)}
    for name, differs in zip(PRM, (False, True), strict=True):
        model = model_of(name)
        assert (np.abs(model(inputs) - model(changed)).max() > 1e-4) == differs
        encoder = model.get_layer("trunk")
        assert encoder.projection.kernel.shape[0] == WIDTH - (name == "prm_base")


def test_prm_without_the_vectors_feature():
    with pytest.raises(
        UserError, match=r"personal_vector: 'pv' is not a numeric feature of the items"
    ):
        model_of("prm_personalized", personal_vector="pv")
    with pytest.raises(UserError, match=r"available: price, sales"):
        model_of("prm_personalized", personal_vector="brand")
    assert model_of("prm_base", personal_vector="pv").count_params() > 0


def test_prm_is_that_of_the_paper():
    config = make_config({"model": "prm_base", "attention_blocks": 3, "attention_dim": 16})
    scorer = create("prm_base", SCHEMA, TABLES, config.model_dump())
    encoder = scorer.build_model().get_layer("trunk").get_config()
    # eq. 7: every head as wide as the encoder, of which three need not divide it; eq. 4: position
    # embeddings on the input vectors
    assert (encoder["num_heads"], encoder["head_dim"], encoder["dim"]) == (3, 16, 16)
    assert (encoder["num_blocks"], encoder["encode_inputs"]) == (3, True)
    assert encoder["positional_encoding"] == "learned"
    assert (config.objective.loss, config.optimization.optimizer, config.experts.dropout) == (
        "softmax_loss",
        "adam",
        0.1,
    )
    plain = PRMScorer(SCHEMA, TABLES).build_model().get_layer("trunk").get_config()
    assert plain["positional_encoding"] == "learned"


@pytest.mark.parametrize(("name", "reads"), [*((n, True) for n in (*PRM, "dlcm")), ("mlp", False)])
def test_rerankers_read_the_order_of_the_list_and_others_do_not(name, reads):
    inputs = raw_batch()
    inputs[MASK] = tf.ones_like(inputs[MASK])
    swapped = {
        key: value[:, ::-1] if key in ("example_numeric", "brand") else value
        for key, value in inputs.items()
    }
    model = model_of(name)
    before, after = model(inputs).numpy(), model(swapped).numpy()[:, ::-1]
    assert (np.abs(before - after).max() > 1e-4) == reads
