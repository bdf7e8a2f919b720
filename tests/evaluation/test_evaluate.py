"""The names by which runs are told apart."""

from pathlib import Path

import pytest

from tfr_moe.evaluation.evaluate import run_names


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
        (["."], ["."]),
        ([], []),
    ],
)  # fmt: skip
def test_runs_of_the_same_folder_name_are_called_by_their_paths_from_the_common_folder(
    paths, names
):
    runs = [Path(path) for path in paths]
    named = run_names(runs)
    assert list(named) == names
    assert list(named.values()) == list(dict.fromkeys(runs))
