"""Presets: what they hold, and that everything else stands above them."""

import pytest

from tfr_moe.config import RunConfig, applicable, load_config, make_config
from tfr_moe.config.models import PRESET_MODELS, PRESETS
from tfr_moe.errors import UserError


@pytest.mark.parametrize("model", PRESET_MODELS)
@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_valid_for_each_of_its_models(preset, model):
    config = make_config({"preset": preset, "model": model})
    for name, value in applicable(model, PRESETS[preset]).items():
        assert config.flat()[name] == value


def test_the_recommended_settings_are_the_default():
    assert make_config({"preset": "recommended"}) == RunConfig()


def test_the_papers_preset_has_the_settings_of_its_section_on_training():
    config = make_config({"preset": "paper"}).flat()
    expected = {
        "num_experts": 10,
        "top_k": 4,
        "num_adversarial": 1,
        "hsc_weight": 1e-3,
        "adversarial_weight": 1e-3,
        "importance_weight": 0.0,
        "gate_learning_rate_multiplier": 1.0,
        "gate_residual": False,
        "shared_expert": False,
        "expert_hidden_dims": (1024, 512, 256),
        "embedding_dim": 16,
        "optimizer": "adamw",
        "learning_rate": 1e-4,
    }
    assert {name: config[name] for name in expected} == expected


def test_file_and_pairs_stand_above_a_preset_whatever_their_order(tmp_path):
    (tmp_path / "run.yaml").write_text("top_k: 3\npreset: recommended\n")
    config = load_config(tmp_path / "run.yaml", ["hsc_weight=0.5", "preset=paper"])
    assert (config.gate.num_experts, config.gate.top_k, config.hsc.hsc_weight) == (10, 3, 0.5)


def test_a_saved_run_holds_the_settings_themselves(tmp_path):
    config = make_config({"preset": "paper"})
    config.save(tmp_path / "config.yaml")
    assert "preset" not in (tmp_path / "config.yaml").read_text()
    assert load_config(tmp_path / "config.yaml") == config


def test_unknown_presets_and_other_models_are_rejected():
    with pytest.raises(UserError, match="preset 'best': must be one of recommended, paper"):
        make_config({"preset": "best"})
    with pytest.raises(UserError, match=r"presets are for dnn, .*, not mmoe"):
        make_config({"preset": "paper", "model": "mmoe"})
