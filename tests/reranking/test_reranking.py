"""Initial lists: cross-fitted, in the order of the scores, complete or absent."""

import json

import numpy as np
import pytest
from rich.console import Console

from tests import tiny
from tests.records import encode_list
from tfr_moe import reranking
from tfr_moe.config import make_config
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.elwc.values import list_id_of
from tfr_moe.errors import UserError
from tfr_moe.reranking import fold_of, reordered, rerank_data, scored_records, with_initial_list
from tfr_moe.schema import MASK, FeatureSchema

QUIET = Console(quiet=True)
FOLDS = 3
RANKER = make_config({"model": "svm_rank", "library_parameters": {"max_iter": 2}})


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tiny.write_data_folder(tmp_path_factory.mktemp("data") / "set", 90, 20, 30)


@pytest.fixture(scope="module")
def out(data, tmp_path_factory):
    """A data set of initial lists, with its work folder kept."""
    path = tmp_path_factory.mktemp("reranked") / "set"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reranking.shutil, "rmtree", lambda *_, **__: None)
        rerank_data(data, path, RANKER, FOLDS, QUIET)
    return path


def work_of(out):
    return out / "work"


def lists(folder, split):
    """Per list id its labels, initial scores and positions, in the order of the record."""
    data = DataFolder(folder)
    result = {}
    for features, labels, extras in ElwcDatasetBuilder(data).build_evaluation_dataset(split):
        for row in range(len(labels)):
            there = features[MASK][row].numpy()
            list_id = extras[data.schema.list_id][row, 0].numpy().decode()
            numbers = features["example_numeric"][row].numpy()[there]
            positions = extras[data.schema.position][row].numpy().reshape(-1)[there]
            result[list_id] = (labels[row].numpy()[there], numbers, positions)
    return result


def test_no_training_list_was_seen_by_the_ranker_that_scored_it(out):
    folders = sorted(work_of(out).glob("without-*"))
    assert len(folders) == FOLDS
    scored = []
    for fold, folder in enumerate(folders):
        trained, held_out = set(lists(folder, "train")), set(lists(folder, "test"))
        assert not trained & held_out
        assert all(fold_of(list_id, FOLDS) == fold for list_id in held_out)
        assert len(trained | held_out) == 90
        scored += held_out
    assert sorted(scored) == sorted(lists(out, "train"))


def test_each_fold_has_the_scores_of_the_ranker_that_has_not_seen_it(out):
    actual = lists(out, "train")
    schema = with_initial_list(tiny.SCHEMA)
    for fold in range(FOLDS):
        without, run = work_of(out) / f"without-{fold}", work_of(out) / "runs" / str(fold)
        for record, scores in scored_records(without, "test", run):
            list_id = list_id_of(schema, record)
            np.testing.assert_allclose(actual[list_id][1][:, -1], -np.sort(-scores), rtol=1e-6)


def test_lists_are_ordered_by_score_and_have_positions(out, data):
    for split in ("train", "validation", "test"):
        before, after = lists(data, split), lists(out, split)
        assert before.keys() == after.keys()
        for list_id, (labels, numbers, positions) in after.items():
            assert (np.diff(numbers[:, -1]) <= 0).all()
            np.testing.assert_array_equal(positions, np.arange(1, len(labels) + 1))
            # The same items: label and features stay together.
            ours = np.column_stack([labels, numbers[:, :-1]])
            theirs = np.column_stack([before[list_id][0], before[list_id][1]])
            np.testing.assert_array_equal(ours[np.lexsort(ours.T)], theirs[np.lexsort(theirs.T)])


def test_the_new_set_describes_itself(out):
    folder = DataFolder(out)
    scores = np.concatenate([numbers[:, -1] for _, numbers, _ in lists(out, "train").values()])
    actual = folder.statistics["example"]["initial_score"]
    assert actual["count"] == len(scores)
    np.testing.assert_allclose(
        [actual["mean"], actual["std"], actual["min"], actual["max"]],
        [scores.mean(), scores.std(), scores.min(), scores.max()],
        rtol=1e-4,
    )
    assert {split: folder.num_lists(split) for split in ("train", "validation", "test")} == {
        "train": 90,
        "validation": 20,
        "test": 30,
    }
    made = json.loads((out / "manifest.json").read_text())["initial_lists"]
    assert made["folds"] == FOLDS
    assert made["ranker"]["model"] == "svm_rank"


def test_a_data_set_is_complete_or_absent(data, tmp_path, monkeypatch):
    out = tmp_path / "set"
    with monkeypatch.context() as patch:
        patch.setattr(reranking, "_write_splits", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            rerank_data(data, out, RANKER, 2, QUIET)
    assert not list(tmp_path.iterdir())
    rerank_data(data, out, RANKER, 2, QUIET)
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
    assert not [path.name for path in out.iterdir() if path.is_dir() and path.name != "vocabulary"]
    with pytest.raises(UserError, match="exists already"):
        rerank_data(data, out, RANKER, 2, QUIET)
    with pytest.raises(UserError, match="the data already has a feature 'initial_score'"):
        rerank_data(out, tmp_path / "again", RANKER, 2, QUIET)


def test_a_file_of_that_name_is_rejected_before_anything_is_trained(data, tmp_path):
    (tmp_path / "set").write_text("mine")
    with pytest.raises(UserError, match="set: is a file, must be a folder"):
        rerank_data(data, tmp_path / "set", RANKER, 2, QUIET)
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_a_data_set_is_not_replaced_by_its_own_lists(data):
    with pytest.raises(UserError, match=r"out .*set: contains the input"):
        rerank_data(data, data, RANKER, FOLDS, QUIET, overwrite=True)


def test_a_set_of_single_columns_gets_one_more():
    schema = FeatureSchema.model_validate(
        {
            "list_id": "q",
            "labels": ["click"],
            "packed": False,
            "features": [{"name": "price", "scope": "example", "kind": "numeric"}],
        }
    )
    record = encode_list(
        schema, "q1", {}, [{"price": 1.0, "click": 0.0}, {"price": 2.0, "click": 1.0}]
    )
    from tfr_moe.elwc.values import decode_list

    new = with_initial_list(schema)
    assert new.position == "initial_position"
    _, items = decode_list(new, reordered(record, [0.5, 0.75], new))
    assert items == [
        {"price": 2.0, "initial_score": 0.75},
        {"price": 1.0, "initial_score": 0.5},
    ]
