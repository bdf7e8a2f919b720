"""A small sweep at the command line, from its configuration to the training of the best."""

import csv
import json

import pytest

from tests.tiny import SMALL, write_data_folder
from tfr_moe.cli import main
from tfr_moe.config import load_config

pytestmark = pytest.mark.slow

SWEEP = """
base:
  expert_hidden_dims: [8]
  embedding_dim: 4
  num_experts: 4
  top_k: 2
  learning_rate: 0.01
  batch_size: 32
  num_epochs: 2
space: {hsc_weight: [0.1, 0.001]}
objective: ndcg
"""


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert ended.value.code == 0


def test_a_sweep_ends_in_a_page_and_a_configuration(tmp_path, capsys):
    data = write_data_folder(tmp_path / "data", train=SMALL["batch_size"] * 4)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    sweep = tmp_path / "sweep"
    tune = ["tune", "--data", data, "--config", tmp_path / "sweep.yaml", "--out", sweep]
    run(*tune)
    printed = capsys.readouterr()
    assert "2 trials with a result." in printed.out
    table = list(csv.DictReader((sweep / "results.csv").open()))
    assert len(table) == 2 and all(trial["num_seeds"] == "1" for trial in table)
    best = table[0]
    result = float(best["mean"])
    config = load_config(sweep / "best.yaml")
    assert config.hsc.hsc_weight == float(best["hsc_weight"])
    assert config.training.monitor == "ndcg"
    assert f"{result:.4f}" in (sweep / "report.html").read_text()

    run("train", "--data", data, "--config", sweep / "best.yaml", "--out", tmp_path / "again")
    assert load_config(tmp_path / "again" / "config.yaml") == config
    again = json.loads((tmp_path / "again" / "metrics.json").read_text())
    # A sweep takes its lists from a cache, in another order than `tfr-moe train` reads them.
    assert again["monitor"] == "val_ndcg"
    assert again["best"]["val_ndcg"] == pytest.approx(result, abs=0.1)
