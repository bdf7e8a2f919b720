"""Sweeps of LightGBM, XGBoost and linear rankers: library parameters, evaluated by our metrics."""

import pytest
from rich.console import Console

from tests import tiny
from tfr_moe.baselines import train_any
from tfr_moe.config import RunConfig
from tfr_moe.data import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.evaluation import evaluate_run, summarize
from tfr_moe.tuning import trial
from tfr_moe.tuning.config import make_sweep_config
from tfr_moe.tuning.results import best_config, summarize_sweep
from tfr_moe.tuning.space import settings_above
from tfr_moe.tuning.sweep import resolve, tune
from tfr_moe.tuning.sweep_folder import TrialJob
from tfr_moe.tuning.trial import SweepContext

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


def test_each_point_of_a_librarys_parameters_is_a_trial_evaluated_on_validation(sweep):
    _, path, trials = sweep
    assert len(trials) == 4 and not any(each.failed for each in trials)
    tried = {tuple(each.hyperparameters.values()) for each in trials}
    assert tried == {(2, 0.1), (2, 0.3), (8, 0.1), (8, 0.3)}
    assert all(set(each.seeds[0].metrics) == {"session_auc", "ndcg"} for each in trials)
    best = max(trials, key=lambda each: each.seeds[0].metrics["ndcg"])
    assert summarize_sweep(path).best.trial.trial_id == best.trial_id


def test_an_objective_beside_the_usual_metrics_is_reported(sweep, tmp_path):
    data, _, _ = sweep
    space = {"library_parameters.num_leaves": [2]}
    (trial,) = tune(data, tmp_path / "sweep", sweep_config(space=space, objective="mrr"), QUIET)
    assert trial.mean == trial.seeds[0].metrics["mrr"] > 0


def test_the_best_configuration_trains_to_the_result_of_its_trial(sweep):
    data, path, _ = sweep
    summary = summarize_sweep(path)
    config = best_config(summary)
    expected = summary.best.trial.hyperparameters
    assert config.baseline.library_parameters == {
        "min_data_in_leaf": 2,
        **{name.partition(".")[2]: value for name, value in expected.items()},
    }
    run = path.parent / "best"
    train_any(data, run, config.replace(seed=9), QUIET)
    # LightGBM draws nothing at these settings: another seed is the same model.
    actual = summarize(evaluate_run(DataFolder(data), run, "validation", ["ndcg"]))["ndcg"]
    assert actual.mean == pytest.approx(summary.best.value, abs=1e-6)


def test_a_trial_that_was_killed_after_training_is_evaluated(sweep, tmp_path, monkeypatch):
    data, _, trials = sweep
    resolve(sweep_config(), DataFolder(data)).save(tmp_path / "sweep.yaml")
    context = SweepContext.open(tmp_path, data)
    job = TrialJob("0000", trials[0].hyperparameters)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(trial, "evaluate_run", killed)
        with pytest.raises(KeyboardInterrupt):
            trial.run_job(context, job, print)
    again = trial.run_job(context, job, print)
    assert again.error is None and again.mean == trials[0].mean


def test_options_that_a_baseline_lacks_are_rejected_before_anything_is_trained(tmp_path):
    data = tiny.write_data_folder(tmp_path / "data", train=10, validation=5, test=5)
    for config, message in (
        (
            sweep_config(algorithm="hyperband"),
            "algorithm hyperband needs epochs, lambdamart has none",
        ),
        (sweep_config(objective="loss"), "objective 'loss': not reported by runs of lambdamart"),
        (sweep_config(objective="ndgc"), "metric 'ndgc' is unknown; allowed: session_auc, "),
        (
            sweep_config(space={"library_parameters.num_leafs": [7]}),
            "'num_leafs' is not a parameter of LightGBM",
        ),
    ):
        with pytest.raises(UserError, match=message):
            tune(data, tmp_path / "sweep", config, QUIET)
    assert not (tmp_path / "sweep").exists()


def test_an_entry_of_the_librarys_parameters_leaves_the_others():
    base = RunConfig(model="xgboost", library_parameters={"eta": 0.1, "max_depth": 6})
    actual = settings_above(base, {"library_parameters.eta": 0.3, "seed": 4})
    assert actual["library_parameters"] == {"eta": 0.3, "max_depth": 6} and actual["seed"] == 4
