"""Search spaces: presets, custom spaces, and error messages."""

import itertools

import pytest

from tests.tiny import SCHEMA
from tfr_moe.config import MODEL_NAMES, MODELS, RunConfig, make_config
from tfr_moe.errors import UserError
from tfr_moe.tuning import keras_tuner as kt
from tfr_moe.tuning.search_space import PRESETS, make_space

GATE = {"preset": "gate_input", "query": ["age"], "user": ["clicked"]}


def points(space):
    """Settings and records of every point of a space of choices."""
    found = []
    for values in itertools.product(*([v for v, _ in d.options] for d in space.dimensions)):
        hp = kt.HyperParameters()
        space.suggest(hp)
        names = [dimension.name for dimension in space.dimensions]
        hp.values = dict(zip(names, values, strict=True))
        found.append(space.suggest(hp))
    return found


def test_lambda_grid_is_that_of_table_viii():
    space = make_space("lambda_grid", RunConfig(), SCHEMA)
    powers = (0.1, 0.01, 0.001, 0.0001)
    expected = {(one, two) for one in powers for two in powers}
    found = {(s["hsc_weight"], s["adversarial_weight"]) for s, _ in points(space)}
    assert found == expected
    assert space.size == 16


def test_experts_are_those_of_figure_6():
    space = make_space("experts", RunConfig(), SCHEMA)
    expected = set(itertools.product((10, 16, 32), (2, 4), (1, 2)))
    found = [(s["num_experts"], s["top_k"], s["num_adversarial"]) for s, _ in points(space)]
    assert set(found) == expected
    assert len(found) == 12
    assert points(space)[0][1] == {"num_experts": 10, "top_k": 2, "num_adversarial": 1}


def test_only_valid_numbers_of_experts_are_in_the_space():
    own = {"num_experts": [4, 6], "top_k": [2, 4], "num_adversarial": [1, 3]}
    for space in (
        make_space(own, RunConfig(), SCHEMA),
        make_space({"preset": "experts", **own}, RunConfig(), SCHEMA),
    ):
        found = {tuple(settings.values()) for settings, _ in points(space)}
        # 4 experts, 2 active: at most 2 idle ones; 4 of 4 active: none; 6 - 4 = 2.
        assert found == {(4, 2, 1), (6, 2, 1), (6, 2, 3), (6, 4, 1)}


def test_experts_of_a_model_without_adversaries_are_n_and_k():
    space = make_space("experts", make_config({"model": "moe"}), SCHEMA)
    assert space.size == 6
    assert set(points(space)[0][0]) == {"num_experts", "top_k"}


@pytest.mark.parametrize("model", ["dnn", "adv_hsc_moe"])
def test_architecture_holds_towers_embeddings_activations_and_a_trunk(model):
    space = make_space("architecture", make_config({"model": model}), SCHEMA)
    assert space.size == 4 * 3 * 2 * 2
    settings = [point for point, _ in points(space)]
    assert {point["trunk"] for point in settings} == {"none", "attention"}
    assert set(settings[0]) == {"expert_hidden_dims", "embedding_dim", "activation", "trunk"}


def test_models_of_attention_have_no_trunk_to_vary():
    space = make_space("architecture", make_config({"model": "context_aware"}), SCHEMA)
    assert {name for point, _ in points(space) for name in point} == {"embedding_dim"}


def test_gate_input_has_the_rows_of_table_vii():
    space = make_space(GATE, RunConfig(), SCHEMA)
    assert {shown["gate_input"]: s["gate_features"] for s, shown in points(space)} == {
        "SC": ("sub",),
        "TC+SC": ("top", "sub"),
        "query+TC+SC": ("age", "top", "sub"),
        "user+TC+SC": ("clicked", "top", "sub"),
        "all": ("all",),
    }
    assert space.description == GATE


def test_a_row_of_the_gate_inputs_is_left_out_only_on_request():
    with pytest.raises(UserError, match=r"no context feature name begins with 'query'.*to omit it"):
        make_space("gate_input", RunConfig(), SCHEMA)
    space = make_space({**GATE, "query": []}, RunConfig(), SCHEMA)
    labels = [shown["gate_input"] for _, shown in points(space)]
    assert labels == ["SC", "TC+SC", "user+TC+SC", "all"]


@pytest.mark.parametrize("model", MODEL_NAMES)
def test_every_ready_space_fits_every_model_that_has_its_settings(model):
    base = make_config({"model": model})
    for name, values in PRESETS.items():
        needed = {"gate_features"} if name == "gate_input" else set(values)
        description = GATE if name == "gate_input" else name
        if not needed & set(MODELS[model].settings):
            with pytest.raises(UserError, match=f"model '{model}' has none of"):
                make_space(description, base, SCHEMA)
            continue
        for settings, _ in points(make_space(description, base, SCHEMA)):
            base.replace(**settings)
            assert set(settings) <= set(MODELS[model].settings)


def test_a_custom_space_has_choices_and_ranges():
    space = make_space(
        {
            "learning_rate": {"min": "1e-4", "max": 0.01, "sampling": "log"},
            "embedding_dim": {"min": 4, "max": 16, "step": 4},
            "expert_hidden_dims": [[64, 32], [16]],
            "hsc_weight": ["1e-3", 1],
            "clip_norm": [None, 1.0],
            "noisy_gate": [True, False],
        },
        RunConfig(),
        SCHEMA,
    )
    hp = kt.HyperParameters()
    settings, shown = space.suggest(hp)
    assert {type(each).__name__: each.name for each in hp.space}["Float"] == "learning_rate"
    assert settings == {
        "learning_rate": 1e-4,
        "embedding_dim": 4,
        "expert_hidden_dims": (64, 32),
        "hsc_weight": 0.001,
        "clip_norm": None,
        "noisy_gate": True,
    }
    assert shown["expert_hidden_dims"] == "64-32"
    assert (shown["clip_norm"], shown["noisy_gate"]) == ("none", "true")
    assert space.size is None


def test_a_function_makes_a_space(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "def space(hp):\n"
        "    model = hp.Choice('model', ['dnn', 'moe'])\n"
        "    settings = {'model': model}\n"
        "    if model == 'moe':\n"
        "        with hp.conditional_scope('model', ['moe']):\n"
        "            settings['top_k'] = hp.Choice('active', [1, 2])\n"
        "    return settings\n"
    )
    space = make_space({"function": f"{path}:space"}, RunConfig(), SCHEMA)
    hp = kt.HyperParameters()
    assert space.suggest(hp) == ({"model": "dnn"}, {"model": "dnn"})
    hp.values["model"] = "moe"
    assert space.suggest(hp)[0] == {"model": "moe", "top_k": 1}
    assert space.description == {"function": f"{path}:space"}


REJECTED = {
    "an unknown preset": ("lamda", r"space 'lamda' is unknown; allowed: lambda_grid, experts"),
    "an unknown setting": ({"top_kk": [1]}, r"unknown setting 'top_kk'; did you mean 'top_k'\?"),
    "the budget": ({"num_epochs": [1, 2]}, "num_epochs must be the same in all trials"),
    "a seed": ({"seed": [1, 2]}, "seed must be the same in all trials"),
    "no values": ({"top_k": []}, "top_k: must be a list of values or a range"),
    "a single value": ({"top_k": 3}, "top_k: must be a list of values or a range. Received: 3"),
    "a wrong value": ({"top_k": ["two"]}, "top_k: .*integer.*Received: 'two'"),
    "a value out of range": ({"hsc_weight": [-1]}, "hsc_weight: .*greater than or equal to 0"),
    "too many experts": ({"top_k": [2, 40]}, "top_k must be <= num_experts = 20, got 40"),
    "the same twice": ({"hsc_weight": [0.1, "1e-1"]}, "values must differ"),
    "a bad range": ({"hsc_weight": {"min": 1, "max": 0}}, "min must be < max, got 1 and 0"),
    "a log of 0": (
        {"hsc_weight": {"min": 0, "max": 1, "sampling": "log"}},
        "min must be > 0 for log sampling",
    ),
    "an unknown key": ({"hsc_weight": {"min": 0, "top": 1}}, "hsc_weight: .*top: unknown key"),
    "a range of words": ({"loss": {"min": 0, "max": 1}}, "loss: .*Received: 0"),
    "half a step": ({"top_k": {"min": 1, "max": 4, "step": 0.5}}, "step must be a whole number"),
    "nothing": ({}, "space: is empty"),
    "another key of a preset": (
        {"preset": "experts", "top": [1]},
        "unknown key 'top'; allowed: num",
    ),
    "no function": ({"function": "nowhere.py:f"}, "function nowhere.py:f: FileNotFoundError"),
    "no such name": ({"function": "json:nothing"}, "function json:nothing: AttributeError"),
    "no colon": ({"function": "json"}, r"must be FILE.py:NAME or MODULE:NAME"),
    "a function and more": (
        {"function": "json:dumps", "top_k": [1]},
        "the only key. Received: top_k",
    ),
    "an unknown gate feature": ({**GATE, "user": ["hat"]}, "user: 'hat' is not a context feature"),
}


@pytest.mark.parametrize("case", REJECTED)
def test_is_rejected(case):
    description, words = REJECTED[case]
    with pytest.raises(UserError, match=words) as error:
        make_space(description, RunConfig(), SCHEMA)
    assert "\n" not in str(error.value)


def test_a_setting_that_the_model_does_not_have_is_rejected():
    with pytest.raises(
        UserError, match="hsc_weight: model 'dnn' does not have it; models that do: hsc_m"
    ):
        make_space({"hsc_weight": [0.1]}, make_config({"model": "dnn"}), SCHEMA)
    varied = {"model": ["dnn", "hsc_moe"], "hsc_weight": [0.1, 0.2]}
    assert make_space(varied, make_config({"model": "dnn"}), SCHEMA).size == 4


def test_a_batch_size_that_changes_the_budget_is_rejected():
    space = {"batch_size": [16, 32]}
    assert make_space(space, RunConfig(), SCHEMA).size == 2
    with pytest.raises(UserError, match="batch_size cannot vary while base"):
        make_space(space, make_config({"steps_per_epoch": 10}), SCHEMA)
