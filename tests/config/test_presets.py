"""Presets: what they hold, and that everything else stands above them."""

import pytest

from tfr_moe.config import RunConfig, applicable, load_config, make_config
from tfr_moe.config.presets import PRESET_MODELS, PRESETS
from tfr_moe.errors import UserError


@pytest.mark.parametrize("model", PRESET_MODELS)
@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_valid_for_each_of_its_models(preset, model):
    config = make_config({"preset": preset, "model": model})
    for name, value in applicable(model, PRESETS[preset]).items():
        assert config.flat()[name] == value


def test_the_papers_preset_is_the_default():
    assert make_config({"preset": "paper"}) == RunConfig()


def test_file_and_pairs_stand_above_a_preset_whatever_their_order(tmp_path):
    (tmp_path / "run.yaml").write_text("top_k: 3\npreset: paper\n")
    config = load_config(tmp_path / "run.yaml", ["hsc_weight=0.5", "preset=recommended"])
    assert (config.gate.num_experts, config.gate.top_k, config.hsc.hsc_weight) == (20, 3, 0.5)


def test_a_saved_run_holds_the_settings_themselves(tmp_path):
    config = make_config({"preset": "recommended"})
    config.save(tmp_path / "config.yaml")
    assert "preset" not in (tmp_path / "config.yaml").read_text()
    assert load_config(tmp_path / "config.yaml") == config


def test_unknown_presets_and_other_models_are_rejected():
    with pytest.raises(UserError, match="preset 'best': must be one of paper, recommended"):
        make_config({"preset": "best"})
    with pytest.raises(UserError, match=r"presets are for dnn, .*, not mmoe"):
        make_config({"preset": "recommended", "model": "mmoe"})
