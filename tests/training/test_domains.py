"""PLE and STAR as runs: what they learn, show, keep and refuse."""

import json

import numpy as np
import pytest
from rich.console import Console

from tests.scorers.batch import raw_batch
from tests.tiny import SMALL, small_config, write_data_folder
from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.serving.export import export_run
from tfr_moe.training import load_run, train

QUIET = Console(quiet=True)


def config(**settings):
    return small_config({**SMALL, "tower_hidden_dims": (4,), "seed": 1}, **settings)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of each model; what is in demand depends on the category."""
    folder = tmp_path_factory.mktemp("domains")
    data = write_data_folder(folder / "data")
    for name in ("ple", "star"):
        train(data, folder / name, config(model=name, metrics=["session_auc"]), QUIET)
    return folder


def epochs(run):
    return json.loads((run / "history.json").read_text())


@pytest.mark.parametrize("name", ["ple", "star"])
def test_domains_learn_what_sells_in_each_of_them(runs, name):
    """An order by chance has an AUC of 0.5; price decides in one category, sales in the other."""
    run, batch = load_run(runs / name), raw_batch()
    assert run.metrics["best"]["val_session_auc"] > 0.65
    first, second = (run.model({**batch, "top": tf.constant([[top]] * 5)}) for top in "ab")
    assert np.abs(first - second).max() > 0.1


def test_moving_moments_are_kept_with_the_best_epoch(runs):
    norm = load_run(runs / "star").model.get_layer("star").norm
    seen = norm.moving_items.numpy().ravel()
    # Three epochs of seven batches, in each some 60 items of each category, and a few of domain 0.
    assert (seen[1:] > 300).all()
    assert 0 < seen[0] < seen[1:].min()
    assert np.abs(norm.moving_mean.numpy()[1] - norm.moving_mean.numpy()[2]).max() > 1e-3


@pytest.mark.slow
def test_the_export_has_the_moving_moments_of_the_run(runs):
    version = export_run(runs / "star", runs / "models" / "star")
    details = json.loads((version / "assets.extra" / "details.json").read_text())
    # Verified by the export itself, in a process of its own.
    assert details["verified"]["largest_difference"] <= 1e-5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "ple", "num_levels": 3}, "num_levels must be <= 2, the number of expert_hidden"),
        ({"model": "star", "category_groups": 4}, "category_groups was removed"),
        ({"model": "star", "tasks": ["a", "b"]}, "tasks is not used by model 'star'"),
        (
            {"model": "star", "auxiliary_hidden_dims": (0,)},
            r"auxiliary_hidden_dims\[0\]: Input should be greater than 0",
        ),
        ({"model": "ple", "unknown_share": 1}, "unknown_share"),
    ],
)
def test_what_does_not_hold_together_is_rejected(settings, message):
    with pytest.raises(UserError, match=message):
        config(**settings)
