"""Names of runs, and evaluation on data with another schema."""

from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from tests.tiny import SCHEMA, SMALL, lists, small_config, write_data_folder
from tfr_moe.data import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.evaluation.evaluate import evaluate_run, run_names
from tfr_moe.training import train


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["runs/dnn", "runs/moe"], ["dnn", "moe"]),
        (["a/run", "b/run"], ["a/run", "b/run"]),
        (["s/dnn/lr-1/seed-1", "s/moe/lr-2/seed-1"], ["dnn/lr-1/seed-1", "moe/lr-2/seed-1"]),
        (
            ["s/dnn/seed-1", "s/dnn/seed-2", "s/moe/seed-1"],
            ["dnn/seed-1", "dnn/seed-2", "moe/seed-1"],
        ),
        (["runs/run", "runs/run/run"], ["run", "run/run"]),
        (["runs/dnn", "runs/dnn"], ["dnn"]),
        (["old/dnn", "new/moe"], ["old/dnn", "new/moe"]),
        (["c/runs/dnn/seed-1", "c/runs/moe/seed-2"], ["dnn/seed-1", "moe/seed-2"]),
        (["old/runs/dnn", "new/runs/moe"], ["dnn", "moe"]),
        ([], []),
    ],
)  # fmt: skip
def test_runs_are_called_by_their_paths_from_the_common_folder(paths, names):
    runs = [Path(path) for path in paths]
    named = run_names(runs)
    assert list(named) == names
    assert list(named.values()) == list(dict.fromkeys(runs))


def test_the_run_one_is_in_has_the_name_of_its_folder(tmp_path, monkeypatch):
    (tmp_path / "moe").mkdir()
    monkeypatch.chdir(tmp_path / "moe")
    assert list(run_names([Path()])) == ["moe"]


def test_a_run_without_weights_is_evaluated_on_data_with_them(tmp_path):
    def weighted(count, seed):
        for list_id, context, items in lists(count, seed):
            yield list_id, context, [{**item, "propensity": 2.0} for item in items]

    schema = SCHEMA.model_copy(update={"weight": "propensity"})
    plain = write_data_folder(tmp_path / "plain")
    other = DataFolder(write_data_folder(tmp_path / "weighted", schema=schema, lists=weighted))
    run = tmp_path / "run"
    train(plain, run, small_config(SMALL, model="dnn", num_epochs=1), Console(quiet=True))
    values = evaluate_run(other, run, "test", ["mrr", "ips_dcg"]).values
    ranks = 1 / values["mrr"]  # each list has one relevant item
    np.testing.assert_allclose(values["ips_dcg"], 2 / np.log2(1 + ranks), rtol=1e-6)
    with pytest.raises(UserError, match="undefined without weights of the items"):
        evaluate_run(DataFolder(plain), run, "test", ["ips_dcg"])
