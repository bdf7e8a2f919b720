"""The settings of experts, from the run to the towers."""

import numpy as np
import pytest

from tests.tiny import write_data_folder
from tfr_moe._compat import tf
from tfr_moe.config import load_config
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.errors import UserError
from tfr_moe.layers.experts import ExpertTowers
from tfr_moe.scorers.flatten import flattened
from tfr_moe.scorers.prune import pruned
from tfr_moe.training.run import make_scorer

SMALL = ["num_experts=4", "top_k=2", "expert_hidden_dims=[8]", "embedding_dim=4"]


def towers_of(model):
    [towers] = [part for part in model.submodules if isinstance(part, ExpertTowers)]
    return towers


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return DataFolder(write_data_folder(tmp_path_factory.mktemp("data"), 40, 10, 10))


def test_they_reach_the_towers_of_a_mixture_and_survive_its_config(folder):
    settings = ["dispatch=capacity", "expert_capacity=32", "jit_compile=true", "expert_norm=batch"]
    scorer = make_scorer(folder, load_config(overrides=[*SMALL, *settings]))
    for made in (scorer, type(scorer).from_config(scorer.get_config())):
        towers = towers_of(made.build_model())
        assert (towers.dispatch, towers.capacity) == ("capacity", 32)
        assert (towers.norm, towers.jit_compile) == ("batch", True)


def test_the_tower_of_a_dnn_is_normalised_too(folder):
    scorer = make_scorer(folder, load_config(model="dnn", overrides=[*SMALL, "expert_norm=layer"]))
    assert towers_of(scorer.build_model()).norm == "layer"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["model=mmoe", "expert_norm=batch"], "expert_norm is for moe, .*, not mmoe"),
        (["model=dnn", "dispatch=capacity"], "dispatch is for moe, .*, not dnn"),
        (["jit_compile=true"], "jit_compile needs dispatch=capacity"),
        (["expert_capacity=0"], "expert_capacity"),
    ],
)
def test_settings_that_do_nothing_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        load_config(overrides=settings)


def test_a_pruned_model_keeps_the_moving_averages_of_its_experts(folder):
    scorer = make_scorer(folder, load_config(overrides=[*SMALL, "expert_norm=batch"]))
    model = scorer.build_model("whole")
    rng = np.random.default_rng(0)
    for weight in towers_of(model).norms[0]:
        weight.assign(0.5 + rng.random(weight.shape))
    small = pruned(scorer, model, ["a > x"])
    assert len(small.experts) < 4
    features = lists_of_one_category(folder)
    # float32 sums in another order
    np.testing.assert_allclose(small.model(features), model(features), atol=1e-5)


def lists_of_one_category(folder):
    features, _ = next(iter(ElwcDatasetBuilder(folder).build_train_dataset()))
    kept = tf.reduce_all(tf.concat([features["top"] == "a", features["sub"] == "x"], 1), 1)
    features = {name: tf.boolean_mask(value, kept) for name, value in features.items()}
    assert len(features["sub"]) > 0
    return features


def test_experts_of_shared_weights_are_served_with_weights_of_their_own(folder):
    overrides = [*SMALL, "shared_weights=true", "expert_norm=batch"]
    scorer = make_scorer(folder, load_config(overrides=overrides))
    model = scorer.build_model("whole")
    rng = np.random.default_rng(0)
    for weight in model.trainable_weights:
        weight.assign_add(0.3 * rng.normal(size=weight.shape))
    flat = flattened(model)
    assert type(towers_of(flat)) is ExpertTowers
    assert len(towers_of(flat).weights) == len(towers_of(model).weights) - 2 * 2
    features, _ = next(iter(ElwcDatasetBuilder(folder).build_train_dataset()))
    np.testing.assert_allclose(flat(features), model(features), rtol=1e-5, atol=1e-5)
    assert flattened(flat) is flat
    small = pruned(scorer, model, ["a > x"])
    assert len(small.experts) < 4
    features = lists_of_one_category(folder)
    expected = model(features)
    for found in (small.model, flattened(small.model)):
        np.testing.assert_allclose(found(features), expected, rtol=1e-5, atol=1e-5)
