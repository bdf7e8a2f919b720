"""`compare` with rankers that train in a moment: leaderboard, report, resuming."""

import json

import pytest
from rich.console import Console

import tfr_moe
from tests.tiny import SCHEMA, shop_log, write_data_folder
from tfr_moe import Ranker
from tfr_moe.cli import main
from tfr_moe.comparison import run, training
from tfr_moe.data import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.schema import SPLITS
from tfr_moe.utils.digests import check_files

QUIET = Console(quiet=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_data_folder(tmp_path_factory.mktemp("compare") / "data", 60, 30, 30)


def test_a_comparison_reports_and_does_not_train_again(folder, tmp_path, monkeypatch, capsys):
    out = tmp_path / "both"
    arguments = {"models": ["lambdamart", "svm_rank"], "budget": "0s", "console": QUIET}
    board = tfr_moe.compare(folder, out, **arguments)
    assert {entry.model for entry in board.entries} == {"lambdamart", "svm_rank"}
    assert list(board.references) == [board.ship] == [board.entries[0].model]
    assert [len(entry.runs) for entry in board.entries] == [2, 2]
    assert json.loads((out / "leaderboard.json").read_text())["verdict"] == board.verdict
    page = (out / "report.html").read_text()
    assert "<h2>Leaderboard</h2>" in page and board.headline in page

    def fail(*_):
        raise AssertionError("trained again")

    monkeypatch.setattr(training, "train_any", fail)
    assert tfr_moe.compare(folder, out, report=False, **arguments) == board
    monkeypatch.setattr(run, "_report", lambda *_: None)
    command = ["compare", "--data", str(folder), "--out", str(out), "--models"]
    with pytest.raises(SystemExit):
        main([*command, "lambdamart,svm_rank", "--budget", "0s"])
    best = f"{out}/runs/{board.entries[0].best_run}"
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"wrote {out}/report.html; best run of {board.ship}: {best}"
    )
    other = "holds a comparison made with metric='session_auc', not 'ndcg'; choose another folder"
    with pytest.raises(UserError, match=other):
        tfr_moe.compare(folder, out, metric="ndcg", **arguments)


def test_data_frames_are_compared_as_the_folder_of_the_same_lists(tmp_path):
    train, test = shop_log(60, seed=1), shop_log(20, seed=2)
    arguments = {
        "models": ["svm_rank"],
        "console": QUIET,
        "report": False,
        "test": test,
        "validation": shop_log(20, seed=3),
        "list_id": "search_id",
        "label": "purchased",
        "time": "date",
    }
    board = tfr_moe.compare(train, tmp_path / "out", **arguments)
    folder = DataFolder(tmp_path / "out" / "data")
    check_files(folder.path, folder.manifest["files"], "data", folder.manifest["files"])
    assert [folder.num_lists(split) for split in SPLITS] == [60, 20, 20]
    assert tfr_moe.compare(train, tmp_path / "out", **arguments) == board
    (entry,) = board.entries
    runs = [Ranker.load(tmp_path / "out" / "runs" / run) for run in entry.runs]
    expected = [run.evaluate(test, ["session_auc"])["session_auc"] for run in runs]
    assert entry.test == pytest.approx(sum(expected) / len(runs), abs=1e-9)
    with pytest.raises(UserError, match="holds a comparison made with"):
        tfr_moe.compare(train[: len(train) // 2], tmp_path / "out", **arguments)
    with pytest.raises(UserError, match="test: with a data frame, give the frame with the test"):
        tfr_moe.compare(train, tmp_path / "out", list_id="search_id", label="purchased")
    with pytest.raises(UserError, match="label: is part of the data-set folder"):
        tfr_moe.compare(folder.path, tmp_path / "out", label="purchased")
    with pytest.raises(TypeError, match=r"^compare\(\) got an unexpected keyword argument 'tme'"):
        tfr_moe.compare(train, tmp_path / "out", test=test, tme="date")


@pytest.mark.parametrize("model", ["moe", "ple", "star"])
def test_a_model_that_needs_a_hierarchy_is_rejected_before_any_is_trained(tmp_path, model):
    schema = SCHEMA.model_copy(update={"hierarchy": None})
    write_data_folder(tmp_path / "data", 8, 4, 4, schema=schema)
    with pytest.raises(UserError, match=f"{model}: .*hierarchy"):
        tfr_moe.compare(tmp_path / "data", tmp_path / "out", ["svm_rank", model], console=QUIET)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": ["dnm"]}, "model 'dnm': must be one of dnn,"),
        ({"models": ["mmoe"]}, "model 'mmoe': must be one of"),
        ({"metric": "ndgc"}, "ndgc"),
        ({"budget": "30"}, "duration '30': must be a number with s, m or h, such as 30m"),
    ],
)
def test_invalid_arguments_are_rejected_before_a_folder_is_made(folder, tmp_path, changes, message):
    arguments = {"models": ["dnn"], "console": QUIET, **changes}
    with pytest.raises(UserError, match=message):
        tfr_moe.compare(folder, tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()
