"""Which model is which: what a name fixes, and what it takes from a run."""

import pytest

from tests.scorers.batch import RERANKING, TABLES
from tests.tiny import SCHEMA
from tfr_moe.config import MODEL_NAMES, make_config
from tfr_moe.config.models import PRESET_MODELS
from tfr_moe.errors import UserError
from tfr_moe.layers import CategoryMixtureOfExperts, ItemTower
from tfr_moe.scorers import MixtureScorer, TowerScorer, WideTowerScorer, create

EVERY = {
    **RERANKING,
    "num_experts": 6,
    "top_k": 2,
    "num_adversarial": 3,
    "hsc_weight": 0.1,
    "adversarial_weight": 0.2,
}

CATEGORY_MIXTURES = ("moe", "adv_moe", "hsc_moe", "adv_hsc_moe")


def mixture_of(name, **parameters):
    model = create(name, SCHEMA, TABLES, {**EVERY, **parameters}).build_model()
    (layer,) = (x for x in model.layers if isinstance(x, CategoryMixtureOfExperts))
    return layer


def test_an_unknown_name_is_rejected_and_the_known_are_listed():
    with pytest.raises(UserError, match="model 'mo' is unknown; allowed: dnn, wide_dnn, moe,"):
        create("mo", SCHEMA, TABLES, {})


@pytest.mark.parametrize(
    ("name", "constraint_gate", "idle"),
    [
        ("moe", False, 0),
        ("adv_moe", False, 3),
        ("hsc_moe", True, 0),
        ("adv_hsc_moe", True, 3),
    ],
)
def test_a_name_fixes_which_regularisers_there_are(name, constraint_gate, idle):
    layer = mixture_of(name)
    assert (layer.constraint_gate is not None) == constraint_gate
    assert layer.num_adversarial == idle
    names = {weight.name for weight in layer.weights}
    assert any("constraint" in weight for weight in names) == constraint_gate
    metrics = {metric.name for metric in layer.metrics}
    assert ("hsc" in metrics) == constraint_gate
    assert ("adversarial" in metrics) == bool(idle)


def test_moe_takes_more_adversarial_experts_than_there_are_idle_ones_for_it_has_none():
    assert mixture_of("moe", top_k=6).num_adversarial == 0


def test_the_weights_of_the_regularisers_come_from_the_run():
    config = mixture_of("adv_hsc_moe").get_config()
    assert (config["hsc_weight"], config["adversarial_weight"]) == (0.1, 0.2)
    assert (config["num_experts"], config["top_k"]) == (6, 2)


@pytest.mark.parametrize(
    ("name", "scorer"),
    [("dnn", TowerScorer), ("wide_dnn", WideTowerScorer), ("moe", MixtureScorer)],
)
def test_every_name_takes_all_settings_of_a_run(name, scorer):
    settings = make_config({"model": name, "expert_hidden_dims": [8], "embedding_dim": 3})
    made = create(name, SCHEMA, TABLES, settings.model_dump())
    assert type(made) is scorer
    assert made.expert_hidden_dims == (8,)
    assert made.embedding_dim == 3


@pytest.mark.parametrize("name", PRESET_MODELS)
def test_a_scorer_has_the_defaults_of_a_run(name):
    settings = make_config({"model": name, "seed": 1}).flat()
    bare = create(name, SCHEMA, TABLES, {"seed": 1}).get_config()
    assert bare == create(name, SCHEMA, TABLES, settings).get_config()


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_the_expert_layer_is_one_or_none(name):
    model = create(name, SCHEMA, TABLES, EVERY).build_model()
    kinds = [type(layer) for layer in model.layers]
    assert kinds.count(CategoryMixtureOfExperts) == (name in CATEGORY_MIXTURES)
    towers = {"wide_deep": 2, **dict.fromkeys(("dnn", "wide_dnn", "mlp", "context_aware"), 1)}
    assert kinds.count(ItemTower) == {"click_model": 1, **towers}.get(name, 0)
