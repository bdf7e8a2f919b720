"""Which runs a comparison trains: learning rates, seeds within the budget, settings."""

import pytest
from rich.console import Console

from tests.tiny import write_data_folder
from tfr_moe.comparison.training import Plan, best_rates, train_models, train_run
from tfr_moe.data import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.training.callbacks import EpochProgress, read_history
from tfr_moe.utils.io import write_json

MODELS = ("dnn", "svm_rank")


def plan_of(out, **changes):
    arguments = {"models": MODELS, "settings": {}, "metric": "ndcg", "learning_rates": (0.1, 0.2)}
    return Plan(out=out, **{"data": None, **arguments, **changes})


@pytest.fixture
def finished(tmp_path):
    """A folder in which runs of 12 seeds are finished: 10 s each, the second rate better."""
    plan = plan_of(tmp_path)
    for seed in range(1, 13):
        for model in MODELS:
            for rate in plan.rates(model):
                run = plan.run(model, rate, seed)
                run.mkdir(parents=True)
                best = {"val_ndcg": 0.5 + (rate or 0)}
                result = {"monitor": "val_ndcg", "best_epoch": 1, "best": best, "seconds": 10.0}
                write_json(run / "metrics.json", result)
    return tmp_path


def seeds_of(plan):
    runs = train_models(plan, Console(quiet=True))
    best = "lr-0.1" if plan.budget == 0 else "lr-0.2"
    assert [run.name for run in runs["dnn"]][:2] == [f"{best}-seed-1", f"{best}-seed-2"]
    assert runs["svm_rank"][0].name == "seed-1"
    assert len(runs["dnn"]) == len(runs["svm_rank"])
    return len(runs["dnn"])


@pytest.mark.parametrize(
    ("budget", "seeds"), [(None, 3), (0, 2), (69, 2), (70, 3), (90, 4), (10_000, 10)]
)
def test_the_budget_says_how_many_seeds_there_are(finished, budget, seeds):
    # The rates take 10 + 10 + 10 s, each further seed of both models 20 s: 70 s are three seeds.
    assert seeds_of(plan_of(finished, budget=budget)) == seeds


def test_the_rate_is_that_of_the_best_validation_metric(finished):
    best, searched = best_rates(plan_of(finished), Console(quiet=True))
    assert best == {"dnn": 0.2, "svm_rank": None}
    assert [run.name for run in searched] == ["lr-0.1-seed-1", "lr-0.2-seed-1", "seed-1"]
    fixed = plan_of(finished, settings={"learning_rate": 0.5}, models=("svm_rank",))
    assert fixed.rates("dnn") == (None,)
    assert fixed.config("dnn", None, 1).optimization.learning_rate == 0.5


# The first rate of both models takes 20 s, a second one 10 s, and a second seed of both 20 s.
@pytest.mark.parametrize(("budget", "rate"), [(0, 0.1), (49, 0.1), (50, 0.2), (None, 0.2)])
def test_other_rates_are_tried_while_the_budget_leaves_room_for_a_second_seed(
    finished, budget, rate
):
    best, _ = best_rates(plan_of(finished, budget=budget), Console(quiet=True))
    assert best["dnn"] == rate


def test_each_model_takes_the_settings_that_it_uses(tmp_path):
    plan = plan_of(
        tmp_path,
        models=("dnn", "moe", "lambdamart", "ple"),
        settings={"top_k": 3, "preset": "paper", "library_parameters": {"num_leaves": 7}},
    )
    plan.check()
    moe = plan.config("moe", 0.1, 5)
    assert (moe.gate.top_k, moe.gate.num_experts, moe.seed) == (3, 10, 5)
    assert (moe.training.monitor, moe.optimization.learning_rate) == ("ndcg", 0.1)
    parameters = plan.config("lambdamart", 0.03, 1).baseline.library_parameters
    assert parameters == {"num_leaves": 7, "learning_rate": 0.03}


def test_an_interrupted_run_gives_the_result_of_an_uninterrupted_one(tmp_path, monkeypatch):
    data = DataFolder(write_data_folder(tmp_path / "data", 48, 16, 4))
    small = {"expert_hidden_dims": [4], "batch_size": 8, "num_epochs": 2}
    whole, parts = (
        plan_of(tmp_path / name, data=data, models=("dnn",), settings=small)
        for name in ("whole", "parts")
    )
    run = train_run(whole, "dnn", 0.01, 1, Console(quiet=True))
    begin = EpochProgress.on_epoch_begin

    def interrupt(callback, epoch, logs=None):
        if epoch == 1:
            raise KeyboardInterrupt
        begin(callback, epoch, logs)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(EpochProgress, "on_epoch_begin", interrupt)
        train_run(parts, "dnn", 0.01, 1, Console(quiet=True))
    again = train_run(parts, "dnn", 0.01, 1, Console(quiet=True))
    assert read_history(again) == read_history(run)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"top_k": 3}, "top_k: no model of the comparison uses it"),
        ({"tok_k": 3}, "unknown key 'tok_k'"),
        ({"monitor": "ndcg"}, "monitor: cannot be set in a comparison; use models, metric or seed"),
    ],
)
def test_settings_that_do_not_fit_are_rejected_before_training(tmp_path, settings, message):
    with pytest.raises(UserError, match=message):
        plan_of(tmp_path, settings=settings).check()
