"""Results of a sweep: order, ties within seed noise, tables, files, and the best configuration."""

import csv
import io
import math

import pytest
from rich.console import Console

from tests.tuning.sweeps import failed, gate_trials, lambda_trials, trial, write_sweep
from tfr_moe.cli import main
from tfr_moe.config import load_config
from tfr_moe.errors import UserError
from tfr_moe.tuning.results import (
    SeedNoise,
    best_config,
    pooled_noise,
    print_table,
    summarize_sweep,
    to_csv,
    varying,
    write_results,
)


def test_noise_pools_the_squares_within_trials():
    trials = [trial("0", {"a": 1}, [0.70, 0.72]), trial("1", {"a": 2}, [0.80, 0.84])]
    # Deviations 0.01, 0.01, 0.02, 0.02 from the two means; two degrees of freedom.
    noise = pooled_noise(trials)
    assert noise.degrees == 2
    assert noise.std == pytest.approx(math.sqrt((2 * 0.01**2 + 2 * 0.02**2) / 2))


def test_least_difference_is_the_t_quantile_times_the_error_of_a_difference():
    # t(0.975, 2) = 4.302653; sqrt(2/2) = 1.
    assert SeedNoise(0.01, 2).least_difference(2) == pytest.approx(0.04302653, rel=1e-6)
    assert SeedNoise(0.01, 2).least_difference(1) == pytest.approx(math.sqrt(2) * 0.04302653)


def test_one_seed_per_trial_gives_no_estimate_of_noise(tmp_path):
    write_sweep(tmp_path / "s", [trial("0", {"a": 1}, [0.7]), trial("1", {"a": 2}, [0.8])])
    summary = summarize_sweep(tmp_path / "s")
    assert summary.noise is None
    assert [entry.tied for entry in summary.entries] == [None, None]
    assert summary.best.trial.std is None


def test_trials_are_ranked_by_mean_and_the_earlier_of_equals_leads(tmp_path):
    trials = [
        trial("0", {"a": 1}, [0.70, 0.72]),
        trial("1", {"a": 2}, [0.80, 0.82]),
        trial("2", {"a": 3}, [0.81, 0.81]),
    ]
    summary = summarize_sweep(write_sweep(tmp_path / "s", trials))
    assert [entry.trial.trial_id for entry in summary.entries] == ["1", "2", "0"]
    assert [entry.rank for entry in summary.entries] == [1, 2, 3]
    assert summary.entries[2].gap == pytest.approx(0.10)


def test_a_loss_is_best_where_it_is_least(tmp_path):
    trials = [
        trial("0", {"a": 1}, [0.5], metric="loss"),
        trial("1", {"a": 2}, [0.4], metric="loss"),
    ]
    path = write_sweep(tmp_path / "s", trials, metric="loss")
    summary = summarize_sweep(path)
    assert summary.best.trial.trial_id == "1"
    assert summary.entries[1].gap == pytest.approx(0.1)


def test_what_is_closer_than_the_seeds_noise_counts_as_tied(tmp_path):
    # Table VIII with seeds 0.0005 on both sides: pooled deviation 0.0007071, 16 degrees of freedom,
    # least difference 2.1199 x 0.0007071 = 0.0014990. The best, 0.8227, is followed by 0.8225,
    # 0.8223, 0.8221, 0.8221, 0.8217, 0.8217, 0.8214 and 0.8212, which is 0.0015 away.
    summary = summarize_sweep(write_sweep(tmp_path / "s", lambda_trials()))
    assert summary.noise.degrees == 16
    assert summary.noise.least_difference(2) == pytest.approx(0.0014990, abs=1e-7)
    assert sum(entry.tied for entry in summary.entries) == 8
    assert not summary.entries[8].tied


def test_failed_and_open_trials_are_listed_separately(tmp_path):
    path = write_sweep(
        tmp_path / "s", [trial("0", {"a": 1}, [0.7]), failed("1", {"a": 2}, "out of memory")]
    )
    (path / "work" / "2" / "seed-1").mkdir(parents=True)
    (path / "work" / "0").mkdir()  # Hyperband keeps the training of trials that have ended
    (path / "trials" / "3").mkdir()  # its record was corrupt and is set aside
    summary = summarize_sweep(path)
    assert [t.error for t in summary.failed] == ["out of memory"]
    assert summary.open == ("2", "3")
    assert len(summary.entries) == 1


def test_a_completed_trial_without_a_number_counts_as_failed(tmp_path):
    path = write_sweep(tmp_path / "s", [trial("0", {"a": 1}, [math.nan])])
    summary = summarize_sweep(path)
    assert not summary.entries
    assert [t.trial_id for t in summary.failed] == ["0"]


def test_what_varies_is_what_differs_or_is_missing_somewhere():
    trials = [
        trial("0", {"a": 1, "b": [8, 4], "c": 2}, [0.7]),
        trial("1", {"a": 1, "b": [8, 8], "c": 2, "d": 5}, [0.7]),
    ]
    assert varying(trials) == ("b", "d")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "space"),
        ("data: x", "space"),
        ("objective: {name: ndcg, direction: max}", "space|objective"),
        ("- a", "must be a mapping of keys to values"),
    ],
)
def test_a_sweep_whose_settings_are_not_valid_is_rejected_in_one_line(tmp_path, text, wrong):
    (tmp_path / "sweep.yaml").write_text(text)
    with pytest.raises(UserError, match=rf"sweep\.yaml: .*({wrong})") as caught:
        summarize_sweep(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_folder_that_is_no_sweep_is_rejected(tmp_path):
    with pytest.raises(UserError, match="no such sweep"):
        summarize_sweep(tmp_path / "nowhere")


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
    rows = list(csv.DictReader(io.StringIO(to_csv(summary))))
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


def test_best_yaml_is_base_and_the_best_trial_under_its_first_seed(tmp_path):
    path = write_sweep(tmp_path / "s", lambda_trials())
    write_results(path)
    config = load_config(path / "best.yaml")
    assert (config.hsc.hsc_weight, config.adversarial.adversarial_weight) == (0.001, 0.001)
    assert (config.experts.expert_hidden_dims, config.training.num_epochs, config.seed) == (
        (16, 8),
        3,
        1,
    )


def test_lists_are_settings_again(tmp_path):
    summary = summarize_sweep(write_sweep(tmp_path / "s", gate_trials()))
    assert best_config(summary).gate.gate_features == ("sub",)


def test_without_a_result_there_is_no_best(tmp_path):
    summary = summarize_sweep(write_sweep(tmp_path / "s", [failed("0", {"a": 1}, "no")]))
    with pytest.raises(UserError, match="no trial has a result yet"):
        best_config(summary)


def test_settings_that_no_longer_fit_are_named(tmp_path):
    trials = [trial("0", {"tower_width": 3}, [0.7])]
    summary = summarize_sweep(write_sweep(tmp_path / "s", trials))
    with pytest.raises(UserError, match=r"trial 0 of .*unknown key 'tower_width'"):
        best_config(summary)


RESULT_FILES = ["best.yaml", "results.csv"]


def result_files(sweep):
    return sorted(
        path.name for path in sweep.iterdir() if path.name not in (".lock", "sweep.yaml", "trials")
    )


def test_all_result_files_are_written_and_agree(tmp_path):
    sweep = write_sweep(tmp_path / "s", [*lambda_trials(), failed("x", {"hsc_weight": 9.0}, "no")])
    write_results(sweep)
    assert result_files(sweep) == RESULT_FILES
    rows = list(csv.DictReader((sweep / "results.csv").open()))
    assert len(rows) == 17
    assert rows[0]["trial_id"] == "0010"
    assert load_config(sweep / "best.yaml").hsc.hsc_weight == float(rows[0]["hsc_weight"])
    assert float(rows[0]["mean"]) == pytest.approx(0.8227)


def test_a_sweep_without_results_has_no_best(tmp_path):
    sweep = write_sweep(tmp_path / "s", [])
    assert write_results(sweep).best is None
    assert result_files(sweep) == [name for name in RESULT_FILES if name != "best.yaml"]


def test_written_again_after_more_trials_all_files_follow(tmp_path):
    trials = lambda_trials()
    sweep = write_sweep(tmp_path / "s", trials[:3])
    write_results(sweep)
    write_sweep(sweep, trials)
    best = write_results(sweep).best
    assert best is not None and best.value == pytest.approx(0.8227)
    assert result_files(sweep) == RESULT_FILES
    assert load_config(sweep / "best.yaml").hsc.hsc_weight == 0.001


def test_the_command_shows_an_unfinished_sweep(tmp_path, capsys):
    sweep = write_sweep(tmp_path / "s", lambda_trials()[:5])
    (sweep / "work" / "0005").mkdir(parents=True)
    with pytest.raises(SystemExit) as ended:
        main(["report", "--sweep", str(sweep)])
    assert ended.value.code == 0
    printed = capsys.readouterr()
    assert "5 trials with a result, 1 running or interrupted." in printed.out
    assert f"wrote {sweep / 'report.html'}" in printed.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sweep", "nowhere"], "sweep nowhere: no such sweep"),
    ],
)
def test_mistakes_get_one_line_and_exit_code_2(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["report", *arguments])
    assert ended.value.code == 2
    printed = capsys.readouterr().err
    assert message in printed and len(printed.strip().splitlines()) == 1
