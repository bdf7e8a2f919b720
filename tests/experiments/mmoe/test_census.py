"""The Census-Income study: its tables from known numbers, and the whole of it on made-up rows."""

import json

import numpy as np
import pytest
from rich.console import Console

from experiments.common.study import StudyContext, run_study
from experiments.common.tables import welch_difference
from experiments.mmoe.census_data import encode, find_file, read_table
from experiments.mmoe.census_summary import PAPER, draw, summarize, tables
from experiments.mmoe.census_training import (
    MODELS,
    CensusSettings,
    auc,
    layer_settings,
    sample_space,
    train,
)
from experiments.mmoe.models import parameter_count
from tests.experiments.mmoe.rows import write_rows
from tfr_moe.layers import MULTITASK
from tfr_moe.tuning import keras_tuner
from tfr_moe.utils import read_json


def a_run(model, seed, validation, test, group=1):
    return {
        "group": group,
        "model": model,
        "seed": seed,
        "chosen": {"learning_rate": 0.001},
        "parameters": 1234,
        "validation": validation,
        "test": test,
    }


RUNS = [
    a_run("single_task", 0, [0.90, 0.98], [0.91, 0.97]),
    a_run("single_task", 1, [0.92, 0.98], [0.89, 0.99]),
    a_run("mmoe", 0, [0.93, 0.98], [0.94, 0.97]),
    a_run("mmoe", 1, [0.92, 0.98], [0.96, 0.99]),
]


def test_best_is_chosen_by_validation_and_shown_on_test():
    ours = summarize(RUNS)["1"]["single_task"]["ours"]
    # Seed 1 is best by validation: 0.89 and 0.99 on the test rows; means 0.90 and 0.98.
    assert ours == pytest.approx(
        {"main_best": 0.89, "main_mean": 0.90, "other_with_best": 0.99, "other_mean": 0.98}
    )


def test_differences_from_mmoe_are_welch_intervals():
    cell = summarize(RUNS)["1"]["single_task"]["mmoe_minus_this_income"]
    assert cell["difference"] == pytest.approx(0.05)
    # Both variances are 0.0002, two runs each: standard error 0.01414, and t of 2 degrees of
    # freedom 4.3027.
    assert cell["high"] - 0.05 == pytest.approx(4.3027 * 0.0141421, rel=1e-4)
    assert "mmoe_minus_this_income" not in summarize(RUNS)["1"]["mmoe"]


def test_single_runs_have_no_interval():
    assert np.isnan(welch_difference([0.9], [0.8])["low"])


def test_the_table_shows_ours_and_the_papers_numbers():
    scores, differences = tables(summarize(RUNS))
    assert [list(column.cells) for column in scores.columns[:3]] == [
        ["single_task", "mmoe"],
        ["0.8900 (0.9398)", "0.9400 (0.9410)"],
        ["0.9000 (0.9337)", "0.9500 (0.9359)"],
    ]
    assert list(differences.columns[0].cells) == ["single_task"]


def test_the_paper_has_every_model_in_both_groups():
    assert list(PAPER[1]) == list(PAPER[2]) == list(MODELS) == list(MULTITASK)


def test_auc_of_each_task_by_hand():
    y = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    logits = np.array([[0.1, 3.0], [0.2, 1.0], [0.3, 0.0], [0.4, 2.0]])
    # Task 1: of 4 pairs only (0.2, 0.3) is in the wrong order. Task 2: 0 is below 1, the
    # others above.
    assert auc(y, logits) == pytest.approx([3 / 4, 2 / 3])


@pytest.mark.parametrize("model", MODELS)
def test_parameters_keep_to_the_budget(model):
    settings = CensusSettings(expert_units=4)
    chosen = sample_space(model, keras_tuner.HyperParameters())
    budget = 8 * 51 * 4 + 2 * 50 * 8 + 2 * (5 * 8 + 9)
    actual = parameter_count(model, 50, 2, **layer_settings(settings, model, 50, chosen))
    if model == "tensor_factorization":
        assert actual < budget
    else:
        assert actual == pytest.approx(budget, rel=0.1)


def test_training_keeps_the_best_epoch_and_learns(tmp_path):
    parts = encode(read_table(write_rows(tmp_path / "rows", 1500)), 1)
    chosen = {**sample_space("mmoe", keras_tuner.HyperParameters()), "learning_rate": 0.02}
    settings = CensusSettings(expert_units=2, epochs=4, patience=1, batch_size=64)
    actual = train(settings, "mmoe", chosen, parts, seed=0)
    assert actual["test"][0] > 0.8
    assert actual["test"][1] > 0.85
    assert 1 <= actual["best_epoch"] <= 4


def test_the_whole_study_resumes_and_draws(tmp_path):
    path = write_rows(tmp_path / "rows", 600)
    out = tmp_path / "out"
    pairs = ["models=[mmoe]", "groups=[1]", "epochs=1", "trials=2", "runs=2"]
    context = StudyContext(out, 1, path, Console(quiet=True))
    run_study("census", context, "small", pairs)
    first = read_json(out / "results.json")
    assert sum(first["rows"].values()) == 600
    runs = (out / "runs.jsonl").read_text().splitlines(keepends=True)
    assert len(runs) == 2
    tuning = (out / "tuning.jsonl").read_text()
    tuned = json.loads(tuning)["result"]
    best = max(tuned["trials"], key=lambda trial: trial["validation"][0])
    assert len(tuned["trials"]) == 2
    assert tuned["chosen"] == best["chosen"] == json.loads(runs[0])["job"]["chosen"]
    (out / "runs.jsonl").write_text(runs[0])
    (out / "group_1.svg").unlink()
    run_study("census", context, "small", pairs)
    assert (out / "tuning.jsonl").read_text() == tuning
    again = read_json(out / "results.json")["tables"]["1"]["mmoe"]["ours"]
    # The same seeds, and additions in another order at most.
    assert again == pytest.approx(first["tables"]["1"]["mmoe"]["ours"], abs=1e-3)
    assert (out / "group_1.svg").is_file()


def test_a_plot_of_single_runs_has_no_interval(tmp_path):
    draw(tmp_path, 1, RUNS[:1])
    assert (tmp_path / "group_1.svg").is_file()


@pytest.mark.slow
def test_real_rows_reach_the_papers_range(real_data):
    table = read_table(find_file(real_data / "census_income"))
    settings = CensusSettings(epochs=2, expert_units=4)
    chosen = sample_space("mmoe", keras_tuner.HyperParameters())
    income, education = (
        train(settings, "mmoe", chosen, encode(table, group), seed=0, evaluated=("test",))["test"]
        for group in (1, 2)
    )
    assert income[0] == pytest.approx(0.94, abs=0.02)
    assert education[0] == pytest.approx(0.885, abs=0.02)
    assert income[1] == pytest.approx(0.992, abs=0.01)
