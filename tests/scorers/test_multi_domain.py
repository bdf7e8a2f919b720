"""PLE and STAR as scorers: domains by category, sizes, smaller variants, errors."""

import numpy as np
import pytest

from tests.scorers.batch import SMALL, TABLES, WIDTH, raw_batch, without_hierarchy
from tests.tiny import SCHEMA
from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.scorers import PLEScorer, StarScorer, create

BOTH = pytest.mark.parametrize("kind", [PLEScorer, StarScorer])


def scattered(kind, **settings):
    """A model of domains a and b whose domains differ, as after training."""
    scorer = kind(SCHEMA, TABLES, **SMALL, **settings)
    model = scorer.build_model()
    rng = np.random.default_rng(2)
    for weight in model.trainable_weights:
        weight.assign_add(rng.normal(size=weight.shape, scale=0.3))
    return scorer, model


def in_category(name):
    return {**raw_batch(), "top": tf.constant([[name]] * 5)}


@BOTH
def test_each_top_category_is_a_domain_and_unknown_ones_share_domain_zero(kind):
    scorer, model = scattered(kind)
    assert scorer.num_domains == 3
    domains = tf.keras.Model(model.input, model.get_layer("domains").output)
    named = {**raw_batch(), "top": tf.constant([["b"], ["zoo"], ["a"], [""], ["[UNK]"]])}
    assert domains(named).numpy().tolist() == [2, 0, 1, 0, 0]
    never, zoo, known = (model(in_category(name)) for name in ("never", "zoo", "a"))
    np.testing.assert_array_equal(never, zoo)
    assert np.abs(known - zoo).max() > 0.01


@BOTH
def test_domains_need_a_category_tree(kind):
    with pytest.raises(UserError, match="domains need `hierarchy`"):
        kind(without_hierarchy(), TABLES)
    features = tuple(
        f.model_copy(update={"hash_buckets": 5}) if f.name == "top" else f for f in SCHEMA.features
    )
    with pytest.raises(UserError, match=r"parent category is the domain .* and has a vocabulary"):
        kind(SCHEMA.model_copy(update={"features": features}), TABLES)


@pytest.mark.parametrize("name", ["ple", "star"])
def test_names_take_their_settings_from_a_run(name):
    settings = {
        **SMALL,
        "unknown_share": 0.25,
        "num_levels": 1,
        "num_domain_experts": 3,
        "num_shared_experts": 4,
        "auxiliary_hidden_dims": (7,),
        "domain_norm": False,
        "top_k": 2,
    }
    config = create(name, SCHEMA, TABLES, settings).get_config()
    given = settings.keys() & config.keys()
    of_ple = {"num_levels", "num_domain_experts", "num_shared_experts"}
    of_star = {"auxiliary_hidden_dims", "domain_norm"}
    assert settings.keys() - given - {"top_k"} == (of_star if name == "ple" else of_ple)
    for setting in given - {"expert_hidden_dims", "auxiliary_hidden_dims"}:
        assert config[setting] == settings[setting], setting


def size(model, layer):
    return sum(int(np.prod(weight.shape)) for weight in model.get_layer(layer).trainable_weights)


def test_parameters_as_the_documentation_counts_them():
    # Three domains over 19 inputs, hidden layers 8 and 5.
    _, ple = scattered(PLEScorer, tower_hidden_dims=(4,))
    # Level 1: 5 experts of 20 x 8, gates 3 x 19 x 3 and 19 x 5; level 2: 5 of 9 x 5, gates 3 x 8 x
    # 3; towers: 3 of 6 x 4 + 5.
    assert size(ple, "ple") == 5 * 160 + 171 + 95 + 5 * 45 + 72 + 3 * 29
    _, star = scattered(StarScorer, auxiliary_hidden_dims=(6,))
    # Four towers of 20 x 8 + 9 x 5 + 6 and norms of 2 x 19; (19 + 4 + 1) x 6 + 7 and 3 x 4.
    assert size(star, "star") == 4 * (211 + 2 * WIDTH) + 151 + 12
