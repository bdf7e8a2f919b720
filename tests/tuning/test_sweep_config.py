"""SweepConfig: accepted settings, and messages for rejected ones."""

import pytest

from tfr_moe.errors import UserError
from tfr_moe.tuning.config import load_sweep_config, make_sweep_config


def test_settings_survive_a_file(tmp_path):
    config = make_sweep_config(
        {
            "base": {"model": "moe", "seed": 4, "learning_rate": "1e-3"},
            "space": {"top_k": [1, 2]},
            "algorithm": "bayesian",
            "max_trials": 5,
            "seeds": 3,
            "objective": "ndcg",
        }
    )
    config.save(tmp_path / "sweep.yaml")
    assert load_sweep_config(tmp_path / "sweep.yaml") == config
    assert config.seeds == (4, 5, 6)
    assert config.direction == "max"
    assert config.base.optimization.learning_rate == 1e-3


def test_pairs_go_before_the_file_and_dots_go_down(tmp_path):
    (tmp_path / "s.yaml").write_text("space: {dropout: [0.1]}\nbase: {top_k: 2}\n")
    pairs = ["base.top_k=3", "base.num_experts=20", "space={hsc_weight: [0.1]}", "seeds=[7, 8]"]
    config = load_sweep_config(tmp_path / "s.yaml", pairs)
    assert (config.base.gate.top_k, config.base.gate.num_experts) == (3, 20)
    assert (config.space, config.seeds) == ({"hsc_weight": [0.1]}, (7, 8))


def test_an_empty_base_is_the_defaults():
    sweep = make_sweep_config({"base": None, "space": {"hsc_weight": [0.1]}})
    assert sweep.base == make_sweep_config({"space": {"hsc_weight": [0.1]}}).base


REJECTED = {
    "an unknown key": ({"spce": 1}, r"unknown key 'spce'; did you mean 'space'\?"),
    "a run's setting": ({"top_k": 1}, "'top_k'; it is a setting of runs: set it in base"),
    "an unknown setting": ({"base": {"topk": 1}}, r"base: unknown key 'topk'; did you mean 'top_k"),
    "a bad setting": ({"base": {"top_k": 21}}, "base: top_k must be <= num_experts = 20, got 21"),
    "a base that is none": ({"base": 3}, "base: must be a mapping of names to values"),
    "no space": ({}, "space: Field required"),
    "an algorithm": ({"algorithm": "grit"}, "algorithm: Input should be 'grid', 'random'"),
    "no limit": ({"algorithm": "random"}, "max_trials is needed by algorithm 'random'"),
    "a limit": ({"algorithm": "hyperband", "max_trials": 3}, "max_trials is not for hyperband"),
    "initial points": ({"initial_points": 3}, "initial_points is for algorithm 'bayesian'"),
    "no seeds": ({"seeds": 0}, "seeds must be >= 1 or a list, got 0"),
    "a seed twice": ({"seeds": [1, 1]}, r"seeds must be different numbers >= 0, got \[1, 1\]"),
    "a mapping": ({"objective": {"name": "ndcg"}}, "objective: Input should be a valid string"),
}


@pytest.mark.parametrize("case", REJECTED)
def test_is_rejected(case):
    settings, words = REJECTED[case]
    whole = settings if case == "no space" else {"space": {"hsc_weight": [0.1]}, **settings}
    with pytest.raises(UserError, match=words) as error:
        make_sweep_config(whole)
    assert "\n" not in str(error.value)


def test_files_that_hold_no_settings_are_rejected(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        load_sweep_config(tmp_path / "none.yaml")
    path = tmp_path / "s.yaml"
    for text, words in (("a: [", "not valid YAML"), ("- 1", "must be a mapping"), ("", "space")):
        path.write_text(text)
        with pytest.raises(UserError, match=words):
            load_sweep_config(path)
