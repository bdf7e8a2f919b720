"""What a trial trains and records, beside a run of the same settings."""

import pytest
from rich.console import Console

from tests.tiny import SMALL, write_data_folder
from tfr_moe.config import applicable, make_config
from tfr_moe.data import DataFolder
from tfr_moe.training import RankingPipeline
from tfr_moe.training.run import fit, make_builder
from tfr_moe.tuning.trial import TrialPipeline


def test_a_trial_trains_what_train_does(tmp_path):
    folder = DataFolder(write_data_folder(tmp_path / "data", train=64, validation=20))
    gated = {**applicable("adv_hsc_moe", SMALL), "model": "adv_hsc_moe"}
    settings = make_config({**gated, "metrics": ["session_auc"], "num_epochs": 2})
    histories = []
    for pipeline in (RankingPipeline, TrialPipeline):
        run = tmp_path / pipeline.__name__
        run.mkdir()
        builder = make_builder(folder, settings)
        trained = fit(builder, settings, run, Console(quiet=True), pipeline)
        histories.append(trained.history.epochs)
    # Losses, what gates and regularizers record, and all of validation.
    expected = [{n: v for n, v in entry.items() if n != "session_auc"} for entry in histories[0]]
    assert histories[1] == [pytest.approx(entry, rel=1e-5) for entry in expected]
    assert {"session_auc", "hsc", "dead_experts"} <= histories[0][0].keys()
