"""RunConfig: what is taken, and what is refused in which words."""

import pytest

from tfr_moe.config import MODEL_NAMES, RunConfig, load_config
from tfr_moe.errors import UserError
from tfr_moe.scorers import MODELS


def test_defaults_are_those_of_the_paper():
    config = RunConfig()
    assert (config.num_experts, config.top_k, config.num_adversarial) == (10, 4, 1)
    assert (config.hsc_weight, config.adversarial_weight) == (1e-3, 1e-3)
    assert config.expert_hidden_dims == (1024, 512, 256)
    assert (config.embedding_dim, config.optimizer, config.learning_rate) == (16, "adamw", 1e-4)


def test_every_model_name_has_a_scorer():
    assert tuple(MODELS) == MODEL_NAMES


def test_settings_survive_a_file(tmp_path):
    config = load_config(overrides=["model=moe", "gate_features=[query, sub]", "list_size=30"])
    config.save(tmp_path / "config.yaml")
    assert load_config(tmp_path / "config.yaml") == config


def test_pairs_go_before_settings_and_settings_before_the_file(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("top_k: 1\nnum_experts: 5\nseed: 9\n")
    config = load_config(path, overrides=["top_k=3"], top_k=2, num_experts=6)
    assert (config.top_k, config.num_experts, config.seed) == (3, 6, 9)


def test_a_number_with_an_exponent_is_a_number():
    assert load_config(overrides=["learning_rate=1e-3"]).learning_rate == 1e-3


REFUSED = {
    "top_k=11": r"top_k must be <= num_experts = 10, got 11",
    "num_adversarial=7": r"num_adversarial must be <= num_experts - top_k = 6, got 7",
    "learning_rat=1": r"unknown key 'learning_rat'; did you mean 'learning_rate'\?",
    "zzz=1": r"unknown key 'zzz'; there are: model, ",
    "monitor=mrr": r"monitor must be loss or one of metrics \(session_auc, ndcg\), got 'mrr'",
    "model=bert": r"model: Input should be 'dnn', 'wide_dnn'",
    "learning_rate=fast": r"learning_rate: Input should be a valid number",
    "dropout=1": r"dropout: Input should be less than 1",
    "expert_hidden_dims=[8, 0]": r"expert_hidden_dims must be >= 1",
    "nonsense": r"--set 'nonsense': must be key=value",
}


@pytest.mark.parametrize("pair", REFUSED)
def test_refused_in_one_line(pair):
    with pytest.raises(UserError, match=REFUSED[pair]) as caught:
        load_config(overrides=[pair])
    assert "\n" not in str(caught.value)


def test_too_many_adversarial_experts_do_not_matter_to_a_model_without_them():
    assert load_config(overrides=["model=moe", "num_adversarial=7"]).model == "moe"


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(UserError, match=r"config .*none\.yaml: cannot be read"):
        load_config(tmp_path / "none.yaml")
    (tmp_path / "list.yaml").write_text("[1, 2]")
    with pytest.raises(UserError, match=r"list\.yaml: must be a mapping"):
        load_config(tmp_path / "list.yaml")
    (tmp_path / "broken.yaml").write_text("a: : b")
    with pytest.raises(UserError, match=r"broken\.yaml: not valid YAML"):
        load_config(tmp_path / "broken.yaml")
