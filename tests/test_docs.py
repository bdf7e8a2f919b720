"""The code of docs/library.md runs as it stands, and does what the page says."""

import re

import numpy as np
import pytest
from rich.console import Console

from tests.tiny import write_data_folder
from tfr_moe._compat import tf
from tfr_moe.config import make_config
from tfr_moe.training import load_run, train


def blocks_of(text):
    """The Python blocks of a Markdown text with the line at which each begins."""
    result = re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text[: match.start()].count("\n") + 2, match[1]) for match in result]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder that holds the data set `data`."""
    path = tmp_path_factory.mktemp("library")
    write_data_folder(path / "data")
    return path


@pytest.fixture(scope="module")
def names(folder, repository):
    """All names that the page defines, after its blocks ran in turn."""
    page = repository / "docs" / "library.md"
    blocks = blocks_of(page.read_text(encoding="utf-8"))
    assert len(blocks) == 9
    namespace = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for line, source in blocks:
            # Blank lines in front, so that a traceback points into the page.
            exec(compile("\n" * (line - 1) + source, str(page), "exec"), namespace)
    return namespace


def test_twenty_lines_train_what_the_command_trains(folder, names):
    settings = {
        "model": "adv_hsc_moe",
        "expert_hidden_dims": (64, 32),
        "learning_rate": 1e-3,
        "batch_size": 32,
        "num_epochs": 2,
        "cache": "none",  # as on the page
    }
    train(folder / "data", folder / "same", make_config(settings), Console(quiet=True))
    history = names["history"].history
    recorded = load_run(folder / "same").metrics
    best = recorded["best_epoch"] - 1
    for name, value in recorded["best"].items():
        # Threads may add up in another order.
        assert history[name][best] == pytest.approx(value, rel=1e-3), name


def test_the_metrics_of_the_page_are_those_in_the_logs(names, repository):
    text = (repository / "docs" / "library.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    history = names["history"].history
    logged = {name for name in history if not name.startswith("val_")}
    assert documented == logged - {"loss", "session_auc", "ndcg"}
    assert all(np.isnan(history[f"val_{name}"]).all() for name in documented)


def test_the_pipelines_leave_an_export_and_the_best_epoch(names):
    assert "serving_default" in names["served"].signatures
    assert names["pipeline"].history.best["epoch"] in (1, 2)


def test_models_of_one_layer_learn_gate_and_come_back(names):
    custom, batch = names["custom"], names["batch"]
    np.testing.assert_array_equal(names["loaded"](batch), custom(batch))
    padded = ~batch["valid"].numpy()
    assert (custom(batch).numpy()[padded] == 0).all()
    scored = names["by_user"]([batch["items"], batch["sub"], tf.ones([256, 16]), batch["valid"]])
    assert scored["expert_ids"].shape == [256, 2]
    assert names["logits"].shape == names["mixed"].shape == [256, 12]
