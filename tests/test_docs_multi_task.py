"""The code of docs/multi_task.md runs as it stands, and its tables name what there is."""

import re

import numpy as np
import pytest
import yaml

from tests.test_docs import blocks_of
from tests.tiny import TASKS, write_data_folder
from tfr_moe.config import MULTITASK_NAMES, make_config
from tfr_moe.config.tasks import TaskSettings


@pytest.fixture(scope="module")
def page(repository):
    return (repository / "docs" / "multi_task.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def names(page, tmp_path_factory):
    """All names that the page defines, after its blocks ran in turn."""
    folder = tmp_path_factory.mktemp("multi_task")
    write_data_folder(folder / "data", schema=TASKS)
    namespace = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for line, source in blocks_of(page):
            exec(compile("\n" * (line - 1) + source, "docs/multi_task.md", "exec"), namespace)
    return namespace


def test_keras_fit_learns_from_dicts(names):
    history = names["history"].history
    assert history["loss"][1] < history["loss"][0]
    assert {"val_click_ndcg", "val_purchase_session_auc"} <= set(history)
    valid = names["features"]["example_list_mask"].numpy()
    purchase, click = (names["scores"][f"scores_{n}"].numpy()[valid] for n in ("purchase", "click"))
    assert (purchase < click).all()


def test_tensorflow_rankings_own_pipeline_takes_scorer_and_data(names):
    assert np.isfinite(names["pipeline"]._optimizer.iterations.numpy())
    assert names["pipeline"]._optimizer.iterations.numpy() > 0


def test_the_yaml_of_the_page_is_a_configuration(page):
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    config = make_config({"model": "mmoe", **yaml.safe_load(text)})
    assert config.multi_task.tasks["purchase"].conditioned_on == "cart"


def test_the_tables_name_every_model_and_every_setting(page):
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert {*MULTITASK_NAMES, *TaskSettings.model_fields} <= documented
