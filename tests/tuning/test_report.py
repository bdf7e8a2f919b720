"""What is written below a sweep's folder, and the command that shows a sweep as far as it is."""

import csv
import json

import pytest

from tests.tuning.sweeps import failed, lambda_trials, write_sweep
from tfr_moe.cli import main
from tfr_moe.config import load_config
from tfr_moe.tuning.report import write_report

ANSWERS = ["best.yaml", "report.html", "results.csv", "results.json", "tensorboard"]


def answers(sweep):
    return sorted(
        path.name for path in sweep.iterdir() if path.name not in ("sweep.yaml", "trials")
    )


def test_all_answers_are_written_and_agree(tmp_path):
    sweep = write_sweep(tmp_path / "s", [*lambda_trials(), failed("x", {"hsc_weight": 9.0}, "no")])
    page = write_report(sweep).read_text(encoding="utf-8")
    assert answers(sweep) == ANSWERS
    rows = list(csv.DictReader((sweep / "results.csv").open()))
    content = json.loads((sweep / "results.json").read_text())
    assert len(rows) == len(content["trials"]) == 17
    assert rows[0]["trial_id"] == content["trials"][0]["trial_id"] == "0010"
    assert load_config(sweep / "best.yaml").hsc_weight == float(rows[0]["hsc_weight"])
    assert f"{float(rows[0]['mean']):.4f}" in page


def test_a_sweep_without_results_has_a_page_but_no_best(tmp_path):
    sweep = write_sweep(tmp_path / "s", [])
    assert "No trial has a result yet." in write_report(sweep).read_text()
    assert answers(sweep) == [name for name in ANSWERS if name != "best.yaml"]


def test_written_again_after_more_trials_all_answers_follow(tmp_path):
    trials = lambda_trials()
    sweep = write_sweep(tmp_path / "s", trials[:3])
    write_report(sweep)
    write_sweep(sweep, trials)
    assert "0.8227" in write_report(sweep).read_text()
    assert answers(sweep) == ANSWERS
    assert load_config(sweep / "best.yaml").hsc_weight == 0.001


def test_the_command_shows_an_unfinished_sweep(tmp_path, capsys):
    sweep = write_sweep(tmp_path / "s", lambda_trials()[:5])
    (sweep / "work" / "0005").mkdir(parents=True)
    with pytest.raises(SystemExit) as ended:
        main(["tune-report", "--sweep", str(sweep)])
    assert ended.value.code == 0
    told = capsys.readouterr()
    assert "5 trials with a result, 1 running or interrupted." in told.out
    assert f"wrote {sweep / 'report.html'}" in told.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sweep", "nowhere"], "sweep nowhere: no such sweep"),
        (["--sweep", "nowhere", "--retrain", "0"], "--retrain"),
    ],
)
def test_mistakes_get_one_line_and_exit_code_2(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["tune-report", *arguments])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert message in told and len(told.strip().splitlines()) == 1
