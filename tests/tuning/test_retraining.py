"""The best of a sweep on the test split: its numbers are those of `tfr-moe evaluate`."""

import io
import json

import pytest
from rich.console import Console

from tests.tiny import SMALL, write_data_folder
from tests.tuning.sweeps import trial, write_sweep
from tfr_moe.config import applicable
from tfr_moe.errors import UserError
from tfr_moe.evaluation.evaluate import evaluate_runs
from tfr_moe.report.sweep import write_sweep_report
from tfr_moe.tuning.retraining import over_seeds, retrain_and_test
from tfr_moe.tuning.tables import print_retrained


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    folder = tmp_path_factory.mktemp("retraining")
    data = write_data_folder(folder / "data", train=64, validation=30, test=40)
    small = applicable("adv_hsc_moe", SMALL)
    settings = {**small, "expert_hidden_dims": [8], "num_epochs": 1}
    return write_sweep(
        folder / "sweep", [trial("7", {"top_k": 2}, [0.7], settings=settings)], data=data
    )


@pytest.fixture(scope="module")
def content(sweep):
    return retrain_and_test(sweep, 2, Console(quiet=True))


@pytest.mark.slow
def test_each_run_is_evaluated_as_by_evaluate(sweep, content):
    runs = [sweep / "retrained" / "7" / f"seed-{seed}" for seed in (2, 3)]
    found = evaluate_runs(
        sweep.parent / "data", runs, metrics=["session_auc"], console=Console(quiet=True)
    )
    for run, of_run in zip(runs, content["runs"], strict=True):
        expected = found.models[run.name]["session_auc"].mean
        assert of_run["test"]["session_auc"] == pytest.approx(expected, abs=1e-12)
    first, second = (run["test"]["session_auc"] for run in content["runs"])
    assert content["summary"]["test"]["session_auc"]["mean"] == pytest.approx((first + second) / 2)


@pytest.mark.slow
def test_the_file_holds_what_is_returned_and_the_page_shows_it(sweep, content):
    assert json.loads((sweep / "retrained" / "results.json").read_text()) == content
    page = write_sweep_report(sweep).read_text()
    assert "Retrained and tested" in page
    assert f"{content['summary']['test']['session_auc']['mean']:.4f}" in page


@pytest.mark.slow
def test_the_terminal_shows_means_with_intervals(content):
    console = Console(file=io.StringIO(), width=80)
    print_retrained(content, console)
    assert "trial 7, retrained with seeds 2, 3, on the test split" in console.file.getvalue()
    numbers = content["summary"]["test"]["ndcg"]
    assert f"{numbers['mean']:.4f}" in console.file.getvalue()
    assert f"{numbers['low']:.4f} to {numbers['high']:.4f}" in console.file.getvalue()


def test_one_run_has_a_mean_but_no_interval():
    assert over_seeds([{"ndcg": 0.5}]) == {
        "ndcg": {"mean": 0.5, "std": None, "low": None, "high": None}
    }


def test_data_without_a_test_split_is_rejected_before_anything_is_trained(sweep, tmp_path):
    data = write_data_folder(tmp_path / "data", train=8, validation=8, test=8)
    for path in data.glob("test-*"):
        path.unlink()
    other = write_sweep(tmp_path / "s", [trial("0", {"top_k": 2}, [0.7])], data=data)
    with pytest.raises(UserError, match="no test-"):
        retrain_and_test(other, 1)
    assert not (other / "retrained").exists()
