"""The table of a sweep on the terminal and as CSV."""

import csv
import io

import pytest
from rich.console import Console

from tests.tuning.sweeps import expert_trials, failed, lambda_trials, trial, write_sweep
from tfr_moe.tuning import leaderboard
from tfr_moe.tuning.leaderboard import print_table
from tfr_moe.tuning.results import summarize_sweep


def printed(path, width=80):
    console = Console(file=io.StringIO(), width=width)
    print_table(path, console)
    return console.file.getvalue()


def test_the_terminal_shows_best_first_with_deviation_gap_and_noise(tmp_path):
    path = write_sweep(tmp_path / "s", lambda_trials())
    lines = printed(path).splitlines()
    rows = [line.split() for line in lines[3:5]]
    assert rows[0][:7] == ["1", "0010", "0.8227", "±", "0.0007", "0.001", "0.001"]
    assert rows[1][:9] == ["2", "0014", "0.8225", "±", "0.0007", "0.0002", "~", "0.001", "0.0001"]
    text = " ".join(" ".join(lines).split())
    assert "16 trials with a result." in text
    assert "differ significantly (95%) from 0.0015 on." in text
    assert "Not significantly worse than the best: 7 of the other 15." in text
    assert all(len(line) <= 80 for line in lines)


def test_failures_are_printed_with_their_errors_whole(tmp_path):
    error = "ResourceExhaustedError: no memory for [1024, 512]" + " and so on" * 10
    path = write_sweep(tmp_path / "s", [trial("0", {"a": 1}, [0.7]), failed("1", {"a": 2}, error)])
    text = printed(path)
    assert f"failed: trial 1 (a = 2): {error}" in text
    assert "1 trial with a result, 1 failed." in text
    assert "One seed per trial" in text


def test_hyperparameters_that_do_not_fit_are_named_below_the_table(tmp_path):
    names = ("learning_rate", "expert_hidden_dims", "dropout", "embedding_dim")
    trials = [trial(str(i), dict.fromkeys(names, i), [0.7 + i / 100]) for i in (0, 1)]
    path = write_sweep(tmp_path / "s", trials)
    narrow = " ".join(printed(path, 80).split())
    assert "hidden columns: embedding_dim, epochs, s (see results.csv)" in narrow
    assert "hidden columns" not in printed(path, 160)


def test_a_sweep_without_results_is_named_as_such(tmp_path):
    assert "No trial has a result yet." in printed(write_sweep(tmp_path / "s", []))


def test_long_tables_end_with_where_the_rest_is(tmp_path):
    trials = [trial(f"{i:02d}", {"a": i}, [0.5 + i / 1000]) for i in range(33)]
    assert "3 more trials: see results.csv" in printed(write_sweep(tmp_path / "s", trials))


def test_csv_has_a_row_for_each_trial_with_means_over_seeds(tmp_path):
    trials = [
        trial("0", {"a": 1, "dims": [16, 8]}, [0.70, 0.72]),
        failed("1", {"a": 2, "dims": [8]}, "went wrong, twice"),
    ]
    summary = summarize_sweep(write_sweep(tmp_path / "s", trials))
    rows = list(csv.DictReader(io.StringIO(leaderboard.to_csv(summary))))
    assert rows[0]["rank"] == "1"
    assert rows[0]["dims"] == "[16, 8]"
    assert float(rows[0]["mean"]) == pytest.approx(0.71)
    assert float(rows[0]["std"]) == pytest.approx(0.02 / 2**0.5)
    assert float(rows[0]["mean_ndcg"]) == pytest.approx(0.61)
    assert (rows[0]["num_seeds"], rows[0]["seconds"]) == ("2", "25.0")
    assert (rows[1]["status"], rows[1]["error"], rows[1]["mean"]) == (
        "failed",
        "went wrong, twice",
        "",
    )


def test_marginals_are_means_over_the_trials_with_a_value(tmp_path):
    summary = summarize_sweep(write_sweep(tmp_path / "s", expert_trials()))
    found = leaderboard.marginals(summary)
    # 0.80 + 0.005 K + 0.0001 number; numbers with K = 2 are 0, 1, 4, 5, 8, 9, those with K = 4 the
    # rest.
    assert [(value, count) for value, _, count in found["top_k"]] == [(2, 6), (4, 6)]
    assert [mean for _, mean, _ in found["top_k"]] == pytest.approx([0.81045, 0.82065])
    assert [value for value, _, _ in found["num_experts"]] == [10, 16, 32]


def test_values_tried_once_have_no_marginals(tmp_path):
    trials = [trial(str(i), {"a": i}, [0.7]) for i in range(3)]
    assert leaderboard.marginals(summarize_sweep(write_sweep(tmp_path / "s", trials))) == {}
