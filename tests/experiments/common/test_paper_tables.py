"""The papers' tables: every row has a config that loads, and a table runs, resumes and prints."""

import io
import json

import numpy as np
import pytest
import yaml
from rich.console import Console

from experiments.common import paper_tables
from experiments.common.paper_tables import PaperTable, folds_of, row_config, run_table
from experiments.common.settings import choose
from experiments.common.study import STUDIES, StudyContext, find, run_study
from experiments.common.tables import load_table
from experiments.context_aware import tables as context_aware
from experiments.prm import tables as prm
from tests import tiny
from tfr_moe import losses
from tfr_moe.config import load_config
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.errors import UserError
from tfr_moe.metrics.per_list import resolve
from tfr_moe.schema import MASK

QUIET = Console(quiet=True)
CONTEXT_AWARE = context_aware.CONFIGS
FOLDERS = {
    **{name: CONTEXT_AWARE / table for name, table in context_aware.TABLES.items()},
    **{name: prm.CONFIGS / table for name, table in prm.TABLES.items()},
}
every_table = pytest.mark.parametrize("folder", FOLDERS.values(), ids=FOLDERS)


@every_table
def test_every_row_has_a_config_and_the_papers_numbers(folder):
    table = load_table(folder, PaperTable)
    for name in table.metrics:
        resolve(name)
    names = [row.name for row in table.rows]
    assert len(set(names)) == len(names)
    used = {"table"}
    for row in table.rows:
        assert row.paper is None or len(row.paper) == len(table.metrics)
        for config in (row.config, row.initial):
            if config is not None:
                used.add(config)
                actual = load_config(folder / f"{config}.yaml")
                assert actual.objective.loss in losses.names()
    assert {path.stem for path in folder.iterdir()} == used


def test_the_seven_losses_stand_in_table_3_under_both_models():
    folder = CONTEXT_AWARE / "table3"
    rows = load_table(folder, PaperTable).rows
    configs = [load_config(folder / f"{row.config}.yaml") for row in rows]
    seven = set(losses.LOSSES) - {"sigmoid_cross_entropy", "listnet_binary"}
    for model in ("context_aware", "mlp"):
        assert {config.objective.loss for config in configs if config.model == model} == seven


def test_every_table_is_a_study():
    assert set(FOLDERS) <= set(STUDIES)
    assert {name for name in FOLDERS if find(name).needs_data} == set(FOLDERS)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "set"
    return tiny.write_data_folder(path, 60, 20, 30, lists=tiny.graded_lists)


@pytest.fixture
def configs(tmp_path):
    """A small table with an initial list, and two rows that are a pair by their names."""
    folder = tmp_path / "configs" / "table4"
    folder.mkdir(parents=True)
    small = {"num_epochs": 1, "batch_size": 32, "metrics": ["ndcg"], "monitor": "ndcg"}
    files = {
        "svm": {"model": "svm_rank", "library_parameters": {"max_iter": 1}},
        "tower": {"model": "dnn", "expert_hidden_dims": [4], **small},
        "table": {
            "title": "NDCG",
            "metrics": ["ndcg_5"],
            "policy": "one",
            "folds": 2,
            "rows": [
                {
                    "name": "X, self-attention",
                    "config": "tower",
                    "initial": "svm",
                    "paper": [9],
                },
                {"name": "X, MLP", "config": "svm", "paper": [8.5]},
            ],
        },
    }
    for name, content in files.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return tmp_path / "configs"


def test_a_table_runs_resumes_and_stands_beside_the_papers(data, configs, tmp_path, monkeypatch):
    context = StudyContext(tmp_path / "study", 1, data, QUIET)
    settings = [f"configs={configs}"]
    parts = run_study("context-aware-table4", context, pairs=settings, runs=2)
    out = io.StringIO()
    for part in parts:
        Console(file=out, width=200).print(part)
    text = out.getvalue()
    assert "(9.00)" in text
    assert "self-attention minus MLP" in text
    actual = json.loads((tmp_path / "study" / "results.json").read_text())
    assert [len(row["metrics"]["ndcg_5"]["runs"]) for row in actual["rows"]] == [2, 2]
    monkeypatch.setattr(paper_tables, "_run_row", lambda *_: 1 / 0)
    monkeypatch.setattr(paper_tables, "_make_initial_list", lambda *_: 1 / 0)
    run_study("context-aware-table4", context, pairs=settings, runs=2)


def test_settings_of_the_last_row_are_checked_before_the_first_run(data, configs, tmp_path):
    (configs / "table4" / "svm.yaml").write_text("model: mlp\nnum_epochs: 1\n")
    out = tmp_path / "study"
    with pytest.raises(UserError, match=r"svm\.yaml: unknown key 'dropuot'"):
        run_study(
            "context-aware-table4",
            StudyContext(out, 1, data, QUIET),
            pairs=[f"configs={configs}", "with_model_settings={mlp: {dropuot: 0.1}}"],
            runs=1,
        )
    assert [path.name for path in out.iterdir()] == ["study.json"]


def test_the_order_of_the_records_is_judged_as_a_ranker(data):
    from tfr_moe.metrics.per_list import reciprocal_rank

    values = []
    for features, labels, _ in ElwcDatasetBuilder(DataFolder(data)).build_evaluation_dataset(
        "test"
    ):
        mask = features[MASK].numpy()
        first_is_best = -np.tile(np.arange(mask.shape[1], dtype=float), (len(mask), 1))
        values += list(reciprocal_rank(first_is_best, labels.numpy(), mask))
    actual = paper_tables.evaluate_display_order(data, "test", ["mrr"], "skip")["mrr"]
    np.testing.assert_allclose(actual, np.nanmean(values), rtol=1e-12)


def test_folds_are_the_data_sets_of_a_folder(data, tmp_path):
    assert folds_of(data) == [data]
    for name in ("Fold2", "Fold1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "schema.json").write_text("{}")
    assert [path.name for path in folds_of(tmp_path)] == ["Fold1", "Fold2"]
    with pytest.raises(UserError, match="is not a data set and contains none"):
        folds_of(tmp_path / "Fold1" / "nothing")


def test_words_choose_rows_and_a_missing_folder_is_named(data, tmp_path):
    context = StudyContext(tmp_path / "study", 1, data, QUIET)
    with pytest.raises(UserError, match="no row's name contains 'nothing'; rows: "):
        run_study("context-aware-table3", context, pairs=["rows=[nothing]"])
    settings = choose(prm.PRMSettings, "default", ["configs=/nowhere"])
    with pytest.raises(UserError, match="cannot be read"):
        run_table("prm-table3", "table3", settings, context)


def test_settings_of_a_model_stand_above_those_of_all_and_libraries_keep_theirs():
    settings = choose(
        context_aware.ContextAwareSettings,
        "default",
        [
            "with_settings={dropout: 0.5, expert_hidden_dims: [8]}",
            "with_model_settings={mlp: {expert_hidden_dims: [9]}}",
        ],
    )
    folder = CONTEXT_AWARE / "table3"
    mlp, attention = (row_config(settings, folder, f"{m}_rmse", 1) for m in ("mlp", "attention"))
    assert (mlp.experts.expert_hidden_dims, mlp.experts.dropout) == ((9,), 0.5)
    assert attention.experts.dropout == 0.5
    assert row_config(settings, folder, "xgboost", 1) == load_config(
        folder / "xgboost.yaml", seed=1
    )
    with pytest.raises(UserError, match="context_aware"):
        choose(
            context_aware.ContextAwareSettings,
            "default",
            ["with_model_settings={perceptron: {dropout: 0.1}}"],
        )
