"""The synthetic study at a tiny size: trained, killed, resumed, and shown."""

import json

import numpy as np
import pytest
from rich.console import Console

from experiments.__main__ import main
from experiments.common.settings import choose
from experiments.common.study import StudyContext, run_study
from experiments.mmoe.models import parameter_count
from experiments.mmoe.synthetic import (
    SyntheticSettings,
    best_rates,
    label_correlations,
    learning_rate,
    main_jobs,
    model_settings,
    pilot_jobs,
    train_one,
)
from tfr_moe.errors import UserError
from tfr_moe.utils import read_json

TINY = [
    "models=[shared_bottom, mmoe]",
    "correlations=[0.5, 1.0]",
    "num_features=4",
    "steps=20",
    "window=10",
    "test_size=50",
    "label_trials=2",
    "label_points=100",
]
PLOTS = (
    "figure_2_label_correlation",
    "figure_3_shared_bottom",
    "figure_4_models",
    "distribution_of_runs",
)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """The folder of a finished tiny study, from the command line."""
    out = tmp_path_factory.mktemp("study") / "out"
    words = ["--size", "small", "--seeds", "1", "--processes", "1"]
    settings = [word for pair in TINY for word in ("--set", pair)]
    assert main(["mmoe-synthetic", "--out", str(out), *words, *settings]) == 0
    return out


def test_the_command_leaves_results_and_every_plot(study):
    results = read_json(study / "results.json")
    assert set(results["loss"]) == {"shared_bottom", "mmoe"}
    assert set(results["loss"]["mmoe"]) == {"0.5", "1.0"}
    lines = [json.loads(line) for line in (study / "runs.jsonl").read_text().splitlines()]
    cell = [x["result"]["loss"] for x in lines if x["job"]["correlation"] == 0.5]
    assert results["loss"]["shared_bottom"]["0.5"]["mean"] == pytest.approx(cell[0])
    for name in PLOTS:
        assert (study / f"{name}.svg").read_text().count("<path") > 5


def test_a_study_that_lost_its_last_line_ends_with_the_same_numbers(study):
    before = read_json(study / "results.json")
    path = study / "runs.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    pairs = [*TINY, "runs=1"]
    context = StudyContext(study, 1, None, Console(quiet=True))
    run_study("mmoe-synthetic", context, "small", pairs)
    assert len(path.read_text().splitlines()) == 4
    after = read_json(study / "results.json")
    assert after["loss"]["mmoe"]["1.0"]["mean"] == pytest.approx(
        before["loss"]["mmoe"]["1.0"]["mean"], rel=1e-5
    )


def test_a_run_learns_and_its_test_loss_is_that_of_its_last_windows():
    settings = choose(
        SyntheticSettings, "small", ["num_features=3", "steps=600", "alphas=[]", "betas=[]"]
    )
    job = {"model": "mmoe", "correlation": 0.5, "learning_rate": 0.01, "seed": 3}
    result = train_one(settings, job)
    # Without sines a label is w.x with variance 1, and noise of variance 0.01 is what remains.
    assert result["curve"][0] > 0.1
    assert 0.009 < result["loss"] < 0.03
    assert result["loss"] == pytest.approx(np.mean(result["task_losses"]))
    assert result["curve"][-1] == pytest.approx(result["loss"], abs=0.01)
    assert len(result["curve"]) == 12


@pytest.mark.parametrize("model", ["single_task", "shared_bottom", "cross_stitch", "omoe"])
def test_every_model_has_about_the_parameters_of_mmoe(model):
    settings = SyntheticSettings()
    budget = parameter_count("mmoe", 50, 2, **model_settings(settings, "mmoe"))
    assert budget == 8 * 51 * 16 + 2 * 50 * 8 + 2 * (17 * 8 + 9)
    count = parameter_count(model, 50, 2, **model_settings(settings, model))
    assert count == pytest.approx(budget, rel=0.03)


def test_pilots_choose_the_rate_of_the_lowest_mean_loss_per_model():
    settings = SyntheticSettings(
        models=("shared_bottom", "mmoe"),
        correlations=(0.5, 1.0),
        learning_rates=(0.1, 0.2),
        pilot_runs=2,
    )
    jobs = pilot_jobs(settings)
    assert len(jobs) == 2 * 2 * 2 * 2
    better = {"shared_bottom": 0.1, "mmoe": 0.2}
    results = [{"loss": 1.0 + (j["learning_rate"] != better[j["model"]])} for j in jobs]
    rates = best_rates(settings, jobs, results)
    assert rates == better
    runs = main_jobs(settings, rates)
    assert {j["learning_rate"] for j in runs if j["model"] == "mmoe"} == {0.2}
    assert not {j["seed"] for j in runs} & {j["seed"] for j in jobs}


def test_the_learning_rate_falls_to_half_in_the_middle_and_to_0_at_the_end():
    rate = learning_rate(SyntheticSettings(steps=200), 0.4)
    np.testing.assert_allclose([rate(0), rate(100), rate(200)], [0.4, 0.2, 0.0], atol=1e-7)
    assert learning_rate(SyntheticSettings(decay="none"), 0.4) == 0.4


def test_one_learning_rate_needs_no_pilots():
    settings = SyntheticSettings(learning_rates=(0.3,))
    assert pilot_jobs(settings) == []
    assert best_rates(settings, [], [])["omoe"] == 0.3


def test_label_correlations_follow_the_exact_curve():
    actual = label_correlations(SyntheticSettings(label_trials=10, label_points=2000))
    exact = np.interp(actual["cosine"], actual["fine_cosine"], actual["exact"])
    np.testing.assert_allclose(actual["mean"], exact, atol=0.03)
    assert actual["mean"] == sorted(actual["mean"])


@pytest.mark.parametrize(
    ("name", "data", "pairs", "message"),
    [
        ("table-9", None, [], "must be one of adv-hsc-moe-table3, "),
        ("mmoe-synthetic", "here", [], "generates its data: leave out --data"),
        ("census", None, [], "needs --data"),
        ("mmoe-synthetic", None, ["steps=25"], "steps must be a multiple of window=50, got 25"),
        ("mmoe-synthetic", None, ["models=[mmoe, mmoe]"], "models must be different"),
        ("mmoe-synthetic", None, ["models=[dnn]"], "models"),
        ("mmoe-synthetic", None, ["correlations=[2.0]"], "correlations"),
    ],
)
def test_mistakes_are_refused_before_anything_is_made(tmp_path, name, data, pairs, message):
    context = StudyContext(tmp_path / "out", 1, data and tmp_path / data, Console(quiet=True))
    with pytest.raises(UserError, match=message):
        run_study(name, context, "small", pairs)
    assert not (tmp_path / "out").exists()
