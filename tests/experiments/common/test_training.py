"""A run of a study: its warnings are printed once."""

from experiments.common.training import train_once
from tests.tiny import write_data_folder
from tfr_moe.config import make_config


def test_a_warning_of_training_is_printed_with_the_first_run_that_has_it(tmp_path, capsys):
    data = write_data_folder(tmp_path / "data", train=32, validation=8, test=8)
    (data / "vocabulary" / "brand.txt").write_text("brand0\n")
    for seed in (1, 2):
        config = make_config({"model": "lambdamart", "seed": seed})
        train_once(data, tmp_path / "runs" / f"seed-{seed}", config)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "one value" in line]
    assert line.startswith("runs/seed-1: warning: one value in all training lists")
