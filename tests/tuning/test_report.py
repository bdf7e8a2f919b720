"""What is written below a sweep's folder, and the command that shows a sweep as far as it is."""

import csv

import pytest

from tests.tuning.sweeps import failed, lambda_trials, write_sweep
from tfr_moe.cli import main
from tfr_moe.config import load_config
from tfr_moe.tuning.leaderboard import write_results

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
