"""The linear score by category beside towers and mixtures, over vectors with ranks."""

import numpy as np
import pytest

from tests.scorers.batch import SMALL, TABLES, WIDTH, raw_batch, without_hierarchy
from tests.tiny import SCHEMA
from tfr_moe._compat import tf
from tfr_moe.config import load_config
from tfr_moe.errors import UserError
from tfr_moe.schema import MASK
from tfr_moe.scorers import MixtureScorer, TowerScorer

MIXTURE = {"num_experts": 4, "top_k": 2, "num_adversarial": 1, "list_relative": True}


@pytest.mark.parametrize(
    ("kind", "settings"), [(TowerScorer, {}), (MixtureScorer, MIXTURE)], ids=["tower", "mixture"]
)
def test_it_adds_the_weights_of_the_lists_category_and_starts_with_nothing(kind, settings):
    inputs = raw_batch()
    plain = kind(SCHEMA, TABLES, **SMALL, **settings).build_model()
    scorer = kind(SCHEMA, TABLES, **SMALL, **settings, category_head=True)
    model = type(scorer).from_config(scorer.get_config()).build_model()
    before = plain(inputs).numpy()
    np.testing.assert_array_equal(model(inputs), before)
    parents, children = (table.embeddings for table in model.get_layer("category_head").tables)
    # Unknown, and TABLES' two parents and four children; x is a child of both.
    assert (parents.shape[0], children.shape[0]) == (3, 5)
    parents.assign(np.eye(*parents.shape))
    children.assign(0.5 * (np.arange(5) == 3)[:, np.newaxis] * np.ones(children.shape))
    encoded = tf.keras.Model(model.input, model.get_layer("features").output)(inputs)
    vectors, mask = encoded.items.numpy(), inputs[MASK].numpy()
    assert vectors.shape[-1] == WIDTH + 2 * bool(settings)  # the ranks of price and sales
    added = np.zeros_like(before)
    for i, (top, sub) in enumerate(zip(inputs["top"].numpy(), inputs["sub"].numpy(), strict=True)):
        added[i] = vectors[i, :, {b"a": 1, b"b": 2}[top[0]]]
        if (top[0], sub[0]) == (b"b", b"x"):
            added[i] += 0.5 * vectors[i].sum(-1)
    np.testing.assert_allclose(model(inputs).numpy()[mask], (before + added)[mask], rtol=1e-5)


def test_it_needs_a_hierarchy():
    with pytest.raises(UserError, match="category_head: the schema has no `hierarchy`"):
        TowerScorer(without_hierarchy(), TABLES, category_head=True)


def test_models_of_other_kinds_refuse_it():
    with pytest.raises(UserError, match="category_head is not used by model 'ple'"):
        load_config(model="ple", overrides=["category_head=true"])
