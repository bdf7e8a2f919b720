"""The example of a daily schedule: a first day, a second one from it, and one in cents."""

import subprocess
import sys

import pandas as pd
import pytest

from tests.tiny import SMALL, shop_log, small_config
from tfr_moe import FeatureSchema
from tfr_moe.serving.versions import versions_of
from tfr_moe.training import load_run

ROLES = {"list_id": "search_id", "label": "purchased", "time": "date"}


@pytest.mark.slow
def test_three_days_of_which_the_last_is_broken(repository, tmp_path):
    first, second = shop_log(300, 1), shop_log(300, 2)
    FeatureSchema.infer(first, **ROLES).save(tmp_path / "schema.yaml")
    small_config({**SMALL, "model": "dnn", "num_epochs": 2}).save(tmp_path / "config.yaml")
    script = [sys.executable, str(repository / "examples" / "daily" / "run_day.py")]
    places = ["--schema", tmp_path / "schema.yaml", "--work", tmp_path / "work"]
    # So few lists can show nothing.
    rules = ["--publish", "margin=1", "category-margin=1", "max-ratio=9"]

    def run(day: str, log: pd.DataFrame) -> int:
        log = log.assign(purchased=log["purchased"].astype(int))
        log.to_csv(tmp_path / f"{day}.csv", index=False)
        places_of_day = ["--logs", tmp_path / f"{day}.csv", *places]
        config = ["--config", tmp_path / "config.yaml"]
        arguments = map(str, [day, *places_of_day, *config, *rules])
        return subprocess.run([*script, *arguments], check=False).returncode

    model = tmp_path / "work" / "models" / "shop"
    assert run("monday", first) == 0 and versions_of(model) == [1]
    assert run("monday", first) == 0 and versions_of(model) == [1]
    assert run("tuesday", second) == 0 and versions_of(model) == [1, 2]
    tuesday = load_run(tmp_path / "work" / "runs" / "tuesday")
    assert (tuesday.path / "manifest.json").read_text().count("runs/monday") == 1
    assert run("wednesday", second.assign(price=100 * second["price"])) == 3
    assert versions_of(model) == [1, 2]
    assert not (tmp_path / "work" / "runs" / "wednesday").exists()
