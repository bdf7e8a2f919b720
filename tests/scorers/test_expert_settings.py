"""The settings of experts, from the run to the towers."""

import pytest

from tests.tiny import write_data_folder
from tfr_moe.config import load_config
from tfr_moe.data import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.layers.experts import ExpertTowers
from tfr_moe.training.run import make_scorer

SMALL = [
    "shared_expert=false",
    "num_experts=4",
    "top_k=2",
    "expert_hidden_dims=[8]",
    "embedding_dim=4",
]


def towers_of(model):
    [towers] = [part for part in model.submodules if isinstance(part, ExpertTowers)]
    return towers


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return DataFolder(write_data_folder(tmp_path_factory.mktemp("data"), 40, 10, 10))


def test_they_reach_the_towers_of_a_mixture_and_survive_its_config(folder):
    settings = ["dispatch=grouped", "expert_capacity=32"]
    scorer = make_scorer(folder, load_config(overrides=[*SMALL, *settings]))
    for made in (scorer, type(scorer).from_config(scorer.get_config())):
        towers = towers_of(made.build_model())
        assert (towers.dispatch, towers.capacity) == ("grouped", 32)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["model=mmoe", "dispatch=grouped"], "dispatch is not used by model 'mmoe'"),
        (["model=dnn", "dispatch=grouped"], "dispatch is not used by model 'dnn'"),
        (["expert_capacity=0"], "expert_capacity"),
    ],
)
def test_settings_that_do_nothing_are_rejected(settings, message):
    with pytest.raises(UserError, match=message):
        load_config(overrides=settings)
