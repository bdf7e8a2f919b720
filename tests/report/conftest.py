"""Small trained runs and a request, for all tests of this folder."""

import json

import pytest
from rich.console import Console

from tests.tiny import SMALL, small_config, write_data_folder
from tfr_moe.training import train

SETTINGS = {name: value for name, value in SMALL.items() if name != "personal_vector"}
REQUEST = {
    "context": {"query_id": "q", "top": "a", "sub": "x", "age": 30, "clicked": ["item1"]},
    "items": [
        {"brand": "brand1", "price": 9.0, "sales": 0.5},
        {"brand": "brand2", "price": 30.0, "sales": 1.5},
        {"brand": "brand3", "price": 2.0, "sales": -1.0},
    ],
}


@pytest.fixture(scope="session")
def root(tmp_path_factory):
    """A folder with the data set `data`, runs `dnn`, `moe` and `residual`, and `request.json`."""
    folder = tmp_path_factory.mktemp("reporting")
    write_data_folder(folder / "data", 48, 16, 40)
    kinds = {
        "dnn": {"model": "dnn"},
        "moe": {"model": "adv_hsc_moe", "preset": "paper"},
        "residual": {"model": "adv_hsc_moe"},
    }
    for name, kind in kinds.items():
        settings = {**SETTINGS, **kind, "num_epochs": 1}
        train(folder / "data", folder / name, small_config(settings), Console(quiet=True))
    (folder / "request.json").write_text(json.dumps(REQUEST))
    return folder
