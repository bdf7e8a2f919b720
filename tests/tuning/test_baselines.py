"""Sweeps over models that are not Keras': the library's own parameters, judged by our metrics."""

import pytest
from rich.console import Console

from tests import tiny
from tfr_moe.comparison import mean_metrics
from tfr_moe.config import RunConfig, load_config
from tfr_moe.errors import UserError
from tfr_moe.tuning.best import retrain, write_best
from tfr_moe.tuning.config import make_sweep_config
from tfr_moe.tuning.dimensions import settings_above
from tfr_moe.tuning.summary import summarize_sweep
from tfr_moe.tuning.sweep import tune

QUIET = Console(quiet=True)
SPACE = {"library_parameters.num_leaves": [2, 8], "library_parameters.learning_rate": [0.1, 0.3]}


def sweep_config(**others):
    base = {"model": "lambdamart", "library_parameters": {"min_data_in_leaf": 2}}
    return make_sweep_config({"base": base, "space": SPACE, "objective": "ndcg", **others})


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    folder = tmp_path_factory.mktemp("baselines")
    data = tiny.write_data_folder(folder / "data", train=60, validation=40, test=20)
    trials = tune(data, folder / "sweep", sweep_config(), QUIET)
    return data, folder / "sweep", trials


def test_each_point_of_a_librarys_parameters_is_a_trial_judged_on_validation(sweep):
    _, path, trials = sweep
    assert len(trials) == 4 and {trial.status for trial in trials} == {"completed"}
    shown = {tuple(trial.hyperparameters.values()) for trial in trials}
    assert shown == {(2, 0.1), (2, 0.3), (8, 0.1), (8, 0.3)}
    assert all(set(trial.seeds[0].metrics) == {"session_auc", "ndcg"} for trial in trials)
    best = max(trials, key=lambda trial: trial.seeds[0].metrics["ndcg"])
    assert summarize_sweep(path).best.trial.trial_id == best.trial_id


def test_the_best_configuration_trains_to_the_result_of_its_trial(sweep):
    data, path, _ = sweep
    summary = summarize_sweep(path)
    config = load_config(write_best(summary))
    expected = summary.best.trial.settings
    assert config.library_parameters == {
        "min_data_in_leaf": 2,
        **{name.partition(".")[2]: value for name, value in expected.items()},
    }
    (run,) = retrain(path, 1, QUIET)
    # LightGBM draws nothing at these settings: another seed is the same model.
    found = mean_metrics(data, run, "validation", ["ndcg"], "skip")["ndcg"]
    assert found == pytest.approx(summary.best.value, abs=1e-6)


def test_what_a_baseline_has_not_is_refused_before_anything_is_trained(tmp_path):
    data = tiny.write_data_folder(tmp_path / "data", train=10, validation=5, test=5)
    for config, message in (
        (sweep_config(algorithm="hyperband"), "algorithm hyperband: .*lambdamart has none"),
        (sweep_config(objective="loss"), "objective 'loss': the runs of lambdamart do not report"),
    ):
        with pytest.raises(UserError, match=message):
            tune(data, tmp_path / "sweep", config, QUIET)
    assert not (tmp_path / "sweep").exists()


def test_an_entry_of_the_librarys_parameters_leaves_the_others():
    base = RunConfig(model="xgboost", library_parameters={"eta": 0.1, "max_depth": 6})
    found = settings_above(base, {"library_parameters.eta": 0.3, "seed": 4})
    assert found["library_parameters"] == {"eta": 0.3, "max_depth": 6} and found["seed"] == 4
