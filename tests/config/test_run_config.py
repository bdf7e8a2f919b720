"""RunConfig: what is taken, and what is rejected in which words."""

from typing import get_args

import pytest
from pydantic import ValidationError

from tfr_moe._compat import tf
from tfr_moe.config import (
    BASELINE_NAMES,
    MODELS,
    SETTINGS,
    RunConfig,
    load_config,
    make_config,
    run_config,
)
from tfr_moe.config.settings import Activation, GateSettings
from tfr_moe.errors import UserError


def test_defaults_are_the_recommended_settings():
    config = RunConfig()
    assert (config.gate.num_experts, config.gate.top_k, config.adversarial.num_adversarial) == (
        20,
        2,
        1,
    )
    assert (config.hsc.hsc_weight, config.adversarial.adversarial_weight) == (0.1, 1e-3)
    assert (config.gate.importance_weight, config.gate.gate_learning_rate_multiplier) == (0.01, 5)
    assert config.gate.gate_residual and config.experts.shared_expert
    assert config.experts.expert_hidden_dims == (1024, 512, 256)
    assert (
        config.features.embedding_dim,
        config.optimization.optimizer,
        config.optimization.learning_rate,
    ) == (16, "adamw", 1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_a_setting_that_the_model_does_not_use_is_rejected_by_name(name):
    defaults = RunConfig(model=name).flat()
    for setting in set(SETTINGS) - set(MODELS[name].settings):
        default = defaults[setting]
        other = {"bool": not default, "str": "other"}.get(type(default).__name__, 7)
        for value in (default, other):
            with pytest.raises(UserError, match=rf"^config: {setting} is not used by model "):
                make_config({"model": name, setting: value})


def test_a_setting_in_a_group_is_named_too_and_presets_are_for_all_their_models():
    with pytest.raises(UserError, match="top_k is not used by model 'dnn'"):
        make_config({"model": "dnn", "gate": {"top_k": 2}})
    with pytest.raises(ValidationError, match="top_k is not used by model 'dnn'"):
        RunConfig(model="dnn", gate=GateSettings(top_k=2))
    assert RunConfig(model="dnn", gate=GateSettings()) == RunConfig(model="dnn")
    assert make_config({"model": "dnn", "preset": "paper"}).replace(dropout=0.5).model == "dnn"


def test_dnn_has_no_gate():
    expected = (
        "top_k is not used by model 'dnn', whose settings are listed by `tfr-moe settings dnn`"
    )
    with pytest.raises(UserError, match=expected):
        load_config(model="dnn", top_k=3)


def test_settings_may_come_in_groups():
    grouped = make_config({"gate": {"top_k": 2}, "optimization": {"learning_rate": 0.1}})
    assert grouped == make_config({"top_k": 2, "learning_rate": 0.1})


@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_a_scorer_or_is_a_baseline(name):
    assert (MODELS[name].scorer is None) == (name in BASELINE_NAMES)
    again = make_config(make_config({"model": name}).model_dump(mode="json"))
    assert again == make_config({"model": name})


def test_what_changed_is_told_from_the_defaults_of_the_model():
    assert make_config({"model": "mlp", "loss": "softmax_loss"}).changed() == {"model": "mlp"}


def test_settings_survive_a_file(tmp_path):
    config = load_config(overrides=["model=moe", "gate_features=[query, sub]", "list_size=30"])
    config.save(tmp_path / "config.yaml")
    assert load_config(tmp_path / "config.yaml") == config


def test_pairs_go_before_settings_and_settings_before_the_file(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("top_k: 1\nnum_experts: 5\nseed: 9\n")
    config = load_config(path, overrides=["top_k=3"], top_k=2, num_experts=6)
    assert (config.gate.top_k, config.gate.num_experts, config.seed) == (3, 6, 9)


def test_a_number_with_an_exponent_is_a_number():
    assert load_config(overrides=["learning_rate=1e-3"]).optimization.learning_rate == 1e-3


REFUSED = {
    "top_k=21": r"top_k must be <= num_experts = 20, got 21",
    "num_adversarial=19": r"num_adversarial must be <= num_experts - top_k = 18, got 19",
    "learning_rat=1": r"unknown key 'learning_rat'; did you mean 'learning_rate'\?",
    "zzz=1": r"unknown key 'zzz'; `tfr-moe settings adv_hsc_moe` lists the settings",
    "monitor=mrr": r"monitor must be loss or one of metrics \(session_auc, ndcg\), got 'mrr'",
    "model=bert": r"model must be one of dnn, wide_dnn, .*, got 'bert'",
    "model=[1]": r"model must be one of dnn, wide_dnn, .*, got \[1\]",
    "learning_rate=fast": r"learning_rate: Input should be a valid number",
    "dropout=1": r"dropout: Input should be less than 1",
    "expert_hidden_dims=[8, 0]": r"expert_hidden_dims\[1\]: Input should be greater than 0",
    "expert_hidden_dims=64,32": r"expert_hidden_dims: must be a list in brackets\. Rec",
    "seed=4294967296": r"seed: Input should be less than 4294967296",
    "gate={top_kk: 3}": r"unknown key 'top_kk' in gate",
    "gate={hsc_weight: 1}": r"unknown key 'hsc_weight' in gate",
    "gate={model: moe}": r"unknown key 'model' in gate",
    "gate=3": r"gate must be a mapping of setting to value, got 3",
    "hsc_on=logits": r"unknown key 'hsc_on'; `tfr-moe settings adv_hsc_moe` lists the settings",
    "hsc_weight=.inf": r"hsc_weight: Input should be a finite number",
    "learning_rate=.nan": r"learning_rate: Input should be a finite number",
    "dispatch=capacity": r"dispatch: Input should be 'auto', 'sorted' or 'grouped'",
    "nonsense": r"setting 'nonsense': must be key=value",
}


@pytest.mark.parametrize("pair", REFUSED)
def test_rejected_in_one_line(pair):
    with pytest.raises(UserError, match=REFUSED[pair]) as caught:
        load_config(overrides=[pair])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["gate: {top_k: 3}\n", "top_k: 3\n"])
@pytest.mark.parametrize("pair", ["gate={top_k: 4, num_experts: 6}", "top_k=4"])
def test_pairs_override_single_settings_by_whichever_name(tmp_path, text, pair):
    path = tmp_path / "config.yaml"
    path.write_text(f"{text}experts: {{dropout: 0.1}}\n")
    config = load_config(path, [pair, "experts={activation: tanh}"])
    assert config.gate.top_k == 4
    assert (config.experts.dropout, config.experts.activation) == (0.1, "tanh")


def test_a_setting_by_both_of_its_names_is_rejected(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("top_k: 3\ngate: {top_k: 2}\n")
    with pytest.raises(UserError, match=r"yaml: top_k is given twice, by itself and in gate$"):
        load_config(path)


def test_an_error_names_the_file_only_with_what_is_above_it(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("top_k: 3\n")
    with pytest.raises(UserError, match=r"^config \S+yaml with settings: unknown key 'foo'"):
        load_config(path, ["foo=1"])
    path.write_text("foo: 3\n")
    with pytest.raises(UserError, match=r"^config \S+/config.yaml: unknown key 'foo'"):
        load_config(path, model="moe")


def test_only_settings_of_the_model_are_suggested():
    with pytest.raises(UserError, match="'num_rounds'; `tfr-moe settings lambdamart` lists the"):
        make_config({"model": "lambdamart", "num_rounds": 20})


def test_two_models_are_rejected():
    with pytest.raises(UserError, match="model is given twice, as dnn and as moe"):
        load_config(overrides=["model=moe"], model="dnn")


@pytest.mark.parametrize("model", ["lambdamart", "xgboost", "svm_rank"])
def test_baselines_reject_settings_of_neural_training(model):
    for settings in ({"batch_size": 3}, {"monitor": "ndcg"}, {"metrics": ["ndcg"]}):
        with pytest.raises(UserError, match=f"is not used by model '{model}'"):
            make_config({"model": model, **settings})


@pytest.mark.parametrize("model", ["context_aware", "prm_base", "prm_personalized"])
def test_models_with_an_encoder_reject_to_have_none(model):
    with pytest.raises(UserError, match=f"trunk must be attention for {model}, got 'none'"):
        make_config({"model": model, "trunk": "none"})


def test_a_removed_setting_loads_at_its_last_default_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(run_config, "_RETIRED", {"bygone": [1, 2]})
    path = tmp_path / "config.yaml"
    path.write_text("model: moe\nbygone: [1, 2]\ntop_k: 3\n")
    assert load_config(path) == make_config({"model": "moe", "top_k": 3})
    path.write_text("model: moe\nbygone: 4\n")
    message = r"config .*config\.yaml: bygone was removed; only its last default, \[1, 2\], is "
    with pytest.raises(UserError, match=message + "accepted, got 4$"):
        load_config(path)


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(UserError, match=r"config .*none\.yaml: cannot be read"):
        load_config(tmp_path / "none.yaml")
    (tmp_path / "list.yaml").write_text("[1, 2]")
    with pytest.raises(UserError, match=r"list\.yaml: must be a mapping"):
        load_config(tmp_path / "list.yaml")
    (tmp_path / "broken.yaml").write_text("a: : b")
    with pytest.raises(UserError, match=r"broken\.yaml: not valid YAML"):
        load_config(tmp_path / "broken.yaml")


@pytest.mark.parametrize(
    ("setting", "allowed"),
    [
        ("seed=-1", "greater than or equal to 0"),
        (f"seed={2**32}", f"less than {2**32}"),
        ("shuffle_buffer_size=1.0e+15", "less than or equal to 10000000"),
        ("shuffle_buffer_size=0", "greater than or equal to 1"),
        ("batch_size=1000000000000", "less than or equal to 1000000"),
        ("list_size=1000000000000", "less than or equal to 1000000"),
        ("activation=rely", "'relu', 'elu'"),
        ("num_experts=1000000000", "less than or equal to 10000"),
        ("embedding_dim=1000000000", "less than or equal to 65536"),
    ],
)
def test_a_value_outside_the_limits_of_its_field_is_rejected_with_them(setting, allowed):
    with pytest.raises(UserError) as caught:
        load_config(overrides=[setting])
    assert setting.split("=")[0] in str(caught.value) and allowed in str(caught.value)
    assert "\n" not in str(caught.value)


def test_keras_has_every_activation():
    for name in get_args(Activation):
        assert tf.keras.activations.get(name)(tf.constant([1.0])).shape == [1], name


BOMB = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (BOMB, "aliases expand to more than 1,000,000 values"),
        ("model: &a [*a]", "an alias is part of the value that it names"),
        ("model: " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("model: dnn\nseed: 1\nseed: 2\n", "key 'seed' occurs twice, again in line 3"),
    ],
)
def test_a_config_that_explodes_is_rejected_in_one_line(tmp_path, text, reason):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(UserError, match=reason) as caught:
        load_config(tmp_path / "config.yaml")
    assert len(str(caught.value)) < 300


def test_anchors_may_name_values(tmp_path):
    (tmp_path / "config.yaml").write_text(
        "model: ple\nexpert_hidden_dims: &dims [8, 4]\ntower_hidden_dims: *dims\n"
    )
    assert load_config(tmp_path / "config.yaml").experts.expert_hidden_dims == (8, 4)
