"""LambdaMART, XGBoost and SVMRank learn, are evaluated like any run, and name missing parts."""

import json

import numpy as np
import pandas as pd
import pytest
import xgboost
from rich.console import Console

from tests import tiny
from tfr_moe._compat import tf
from tfr_moe.baselines import open_run, rows, train_baseline
from tfr_moe.baselines.rows import Column, Rows, write_rows
from tfr_moe.baselines.run import MODULES
from tfr_moe.baselines.svm_rank import LinearRanker
from tfr_moe.cli import main
from tfr_moe.config import BASELINE_NAMES, make_config
from tfr_moe.config.settings import FeatureSettings
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.errors import UserError
from tfr_moe.evaluation.evaluate import evaluate_runs
from tfr_moe.schema import MASK
from tfr_moe.training import load_run
from tfr_moe.utils.failures import file_errors

QUIET = Console(quiet=True)
SHORT = {
    "lambdamart": {"num_iterations": 30, "min_data_in_leaf": 5, "num_leaves": 7},
    "xgboost": {"num_boost_round": 30, "max_depth": 3},
    "svm_rank": {"max_iter": 5, "alpha": 1e-3},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("graded") / "set"
    return tiny.write_data_folder(path, lists=tiny.graded_lists)


def config(model, **parameters):
    return make_config({"model": model, "library_parameters": {**SHORT[model], **parameters}})


@pytest.fixture(scope="module")
def runs(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for model in BASELINE_NAMES:
        train_baseline(data, folder / model, config(model), QUIET)
    return folder


def test_a_disk_that_is_full_of_rows_is_named(data, tmp_path):
    run = tmp_path / "run"
    (tmp_path / "train.values").symlink_to("/dev/full")
    with (
        pytest.raises(UserError, match=f"run {run}: No space left on device"),
        file_errors(f"run {run}"),
    ):
        write_rows(DataFolder(data), "train", tmp_path, lambda *_: None, FeatureSettings())


def test_every_baseline_has_a_module():
    assert tuple(MODULES) == BASELINE_NAMES


@pytest.mark.parametrize("model", BASELINE_NAMES)
def test_the_command_trains_what_the_function_trains(runs, data, tmp_path, model):
    parameters = f"library_parameters={json.dumps(SHORT[model])}"
    where = [f"--data={data}", f"--out={tmp_path / 'run'}"]
    with pytest.raises(SystemExit) as ended:
        main(["train", *where, f"--model={model}", f"--set={parameters}"])
    assert ended.value.code == 0
    ours, theirs = (
        json.loads((run / "metrics.json").read_text())["best"]
        for run in (tmp_path / "run", runs / model)
    )
    assert ours == theirs


def test_runs_of_other_seeds_have_the_bins_of_the_same_rows(data, tmp_path):
    few = {**SHORT["lambdamart"], "bin_construct_sample_cnt": 40}
    trees = []
    for seed in (1, 2):
        settings = {"model": "lambdamart", "library_parameters": few, "seed": seed}
        train_baseline(data, tmp_path / f"{seed}", make_config(settings), QUIET)
        trees.append((tmp_path / f"{seed}" / "model.txt").read_text().split("parameters:")[0])
    assert trees[0] == trees[1]


def test_baselines_beat_the_order_of_the_records(runs, data):
    actual = evaluate_runs(
        data, [runs / model for model in BASELINE_NAMES], metrics=["ndcg"], console=QUIET
    )
    means = {model: actual.models[model]["ndcg"].mean for model in BASELINE_NAMES}
    # In random order the NDCG of these lists is 0.68; a linear model can't read the category.
    assert means["lambdamart"] > 0.85, means
    assert means["xgboost"] > 0.85, means
    assert means["svm_rank"] > 0.75, means


@pytest.mark.parametrize("model", BASELINE_NAMES)
def test_a_run_read_again_scores_as_its_ranker_and_leaves_padding_at_zero(model, runs, data):
    loaded = open_run(runs / model)
    features, *_ = next(
        iter(ElwcDatasetBuilder(DataFolder(data), 16).build_evaluation_dataset("test"))
    )
    scores, mask = loaded.score(features).numpy(), features[MASK].numpy()
    rows = loaded.encoder(features, features[MASK]).numpy()
    np.testing.assert_allclose(scores[mask], loaded.ranker.predict(rows), rtol=1e-6)
    np.testing.assert_array_equal(scores[~mask], 0.0)
    assert len(np.unique(scores[mask])) > 10


@pytest.mark.parametrize("model", BASELINE_NAMES)
def test_a_finished_run_reports_rounds_and_the_validation_metric_of_evaluate(model, runs, data):
    actual = json.loads((runs / model / "metrics.json").read_text())
    assert actual["model"] == model
    assert 1 <= actual["best_epoch"] <= actual["epochs"]
    assert actual["monitor"] in actual["best"]
    splits = evaluate_runs(data, [runs / model], split="validation", console=QUIET)
    expected = splits.models[model]["ndcg_10"].mean
    assert actual["best"] == {"val_ndcg_10": pytest.approx(expected, abs=1e-6)}
    assert actual["train_lists"] == 200
    assert not list((runs / model).glob(".rows*"))


def test_the_other_objective_of_xgboost_is_another_model(runs, data, tmp_path):
    train_baseline(data, tmp_path / "ndcg", config("xgboost", objective="rank:ndcg"), QUIET)
    scores = []
    for run in (runs / "xgboost", tmp_path / "ndcg"):
        features, *_ = next(
            iter(ElwcDatasetBuilder(DataFolder(data)).build_evaluation_dataset("test"))
        )
        scores.append(open_run(run).score(features).numpy())
    assert np.abs(scores[0] - scores[1]).max() > 0.1


def test_xgboost_bins_weighted_rows_as_its_matrix_of_all_rows():
    rng = np.random.default_rng(0)
    sizes = np.full(7000, 10)  # more rows than a block of `Rows.blocks`
    values = rng.normal(size=(70_000, 3)).astype(np.float32)
    labels = (values @ [1.0, -1.0, 2.0] > 0.5).astype(np.float32)
    weights = np.repeat(rng.random(7000).astype(np.float32) + 0.5, 10)
    columns = [Column(name, None) for name in "abc"]
    train = Rows(values, labels, weights, sizes, columns, np.zeros(len(labels), np.float32))
    settings = MODULES["xgboost"].settings_of({"num_boost_round": 3}, seed=1)
    fitted = MODULES["xgboost"].fit(train, train, settings, lambda line: None)
    matrix = xgboost.DMatrix(values, labels, weight=weights[::10], group=sizes)
    names = ("objective", "eta", "max_depth", "tree_method", "seed")
    booster = xgboost.train({name: settings[name] for name in names}, matrix, 3)
    np.testing.assert_allclose(fitted.ranker.predict(values), booster.inplace_predict(values))


def test_lightgbm_takes_positions_off_the_gradients(runs, data, tmp_path):
    biased = config("lambdamart").replace(position_bias=("position",))
    train_baseline(data, tmp_path / "positions", biased, QUIET)
    features, *_ = next(iter(ElwcDatasetBuilder(DataFolder(data)).build_evaluation_dataset("test")))
    scores = [
        open_run(run).score(features).numpy()
        for run in (runs / "lambdamart", tmp_path / "positions")
    ]
    assert np.abs(scores[0] - scores[1]).max() > 0.01
    positioned = write_rows(
        DataFolder(data), "test", tmp_path, lambda *_: None, FeatureSettings(), True
    )
    expected = np.concatenate([np.arange(1, size + 1) for size in positioned.sizes])
    np.testing.assert_array_equal(positioned.positions, expected)


def test_rows_are_the_valid_items_in_the_order_of_the_lists(data, tmp_path):
    folder = DataFolder(data)
    settings = FeatureSettings(list_relative=True)
    rows = write_rows(folder, "train", tmp_path, lambda done, total: None, settings)
    names = [column.name for column in rows.columns]
    assert names == [
        "brand",
        "price",
        "sales",
        "price (rank)",
        "sales (rank)",
        "top",
        "sub",
        "age",
        "clicked (number)",
        "clicked (first)",
    ]
    start = 0
    for features, labels, _ in ElwcDatasetBuilder(folder, 50).build_evaluation_dataset("train"):
        mask = features[MASK].numpy()
        numbers = features["example_numeric"].numpy()[mask]
        of_batch = rows.values[start : start + len(numbers)]
        np.testing.assert_allclose(of_batch[:, 1], np.log1p(numbers[:, 0]), rtol=1e-6)
        np.testing.assert_array_equal(of_batch[:, 2], numbers[:, 1])
        lists = np.where(mask)[0]
        sales = pd.Series(numbers[:, 1]).groupby(lists)
        ranks = (sales.rank() - 1) / (sales.transform("size") - 1)
        np.testing.assert_allclose(of_batch[:, 4], ranks, rtol=1e-6)
        ids = features["clicked"].numpy()
        np.testing.assert_array_equal(of_batch[:, 8], ((ids != b"").sum(axis=1))[lists])
        np.testing.assert_array_equal(
            rows.labels[start : start + len(numbers)], labels.numpy()[mask]
        )
        start += len(numbers)
    assert start == len(rows.labels) == rows.sizes.sum()
    assert set(rows.values[:, 5]) == {1.0, 2.0}


def test_blocks_are_whole_lists():
    one = np.ones(12, np.float32)
    rows = Rows(one[:, None], one, one, np.array([5, 1, 4, 2]), [], one)
    blocks = [(at.start, at.stop, sizes.tolist()) for at, sizes in rows.blocks(5)]
    assert blocks == [(0, 5, [5]), (5, 10, [1, 4]), (10, 12, [2])]


def test_mistakes_are_named(data, tmp_path, monkeypatch):
    with pytest.raises(UserError, match="objective must be rank:pairwise or rank:ndcg"):
        train_baseline(data, tmp_path / "a", config("xgboost", objective="reg:linear"), QUIET)
    with pytest.raises(UserError, match="objective is set by the model's name"):
        train_baseline(data, tmp_path / "b", config("lambdamart", objective="binary"), QUIET)
    with pytest.raises(UserError, match="shoe_size"):
        train_baseline(data, tmp_path / "c", config("svm_rank", shoe_size=4), QUIET)
    with pytest.raises(UserError, match="scikit-learn: The 'alpha' parameter"):
        train_baseline(data, tmp_path / "d", config("svm_rank", alpha=-1.0), QUIET)
    with pytest.raises(UserError, match="library_parameters is not used by model 'dnn'"):
        make_config({"model": "dnn", "library_parameters": {"alpha": 1}})
    with pytest.raises(UserError, match=r"LightGBM is needed .*pip install 'tfr_moe\[baselines\]'"):
        rows.library("no_such_library", "LightGBM")
    with pytest.raises(UserError, match="takes whole grades from 0 to 30"):
        rows.whole_grades(np.array([1.0, 0.5], np.float32), 30, "lambdamart")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("lambdamart", "^library_parameters: 'num_leafs' is not a parameter of LightGBM$"),
        ("xgboost", "^library_parameters: 'num_leafs' is not a parameter of XGBoost$"),
        ("svm_rank", "^library_parameters: .* unexpected keyword argument 'num_leafs'$"),
    ],
)
def test_unknown_parameters_are_rejected_before_training(model, message, data, tmp_path):
    with pytest.raises(UserError, match=message):
        train_baseline(data, tmp_path / "run", config(model, num_leafs=5), QUIET)
    assert not (tmp_path / "run").exists()


def test_aliases_of_parameters_replace_the_defaults():
    given = {"eta": 0.3, "max_leaves": 3, "subsample": 0.5}
    settings = MODULES["lambdamart"].settings_of(given, 1)
    assert (settings["learning_rate"], settings["num_leaves"]) == (0.3, 3)
    assert settings.keys().isdisjoint({"eta", "max_leaves"}) and settings["subsample"] == 0.5
    with pytest.raises(UserError, match="'eta' is another name of 'learning_rate'"):
        MODULES["lambdamart"].settings_of({"eta": 0.3, "learning_rate": 0.1}, 1)
    assert MODULES["xgboost"].settings_of({"lambda": 2.0, "subsample": 0.5}, 1)["lambda"] == 2.0


def test_numbers_that_yaml_takes_for_text_are_numbers():
    given = {"alpha": "1e-3", "penalty": "l2", "n": 3}
    assert rows.merged({"alpha": 1.0}, given, ()) == {"alpha": 0.001, "penalty": "l2", "n": 3}


def test_a_baseline_is_not_taken_for_a_neural_model(runs):
    with pytest.raises(UserError, match="svm_rank is not a neural model"):
        load_run(runs / "svm_rank")


def test_an_interrupted_training_leaves_no_rows(data, tmp_path, monkeypatch):
    run = tmp_path / "run"
    monkeypatch.setattr(MODULES["svm_rank"], "fit", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train_baseline(data, run, config("svm_rank"), QUIET)
    with pytest.raises(UserError, match="no such run"):
        open_run(run)
    assert not list(run.glob(".rows*"))


def test_a_training_begins_afresh_without_the_rows_of_a_killed_one(data, tmp_path, monkeypatch):
    run = tmp_path / "run"

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(MODULES["svm_rank"], "fit", stop)
    with pytest.raises(KeyboardInterrupt):
        train_baseline(data, run, config("svm_rank"), QUIET)
    left = run / ".rows.partial"
    left.mkdir()
    (left / "train.values").write_bytes(b"1234")
    monkeypatch.undo()
    train_baseline(data, run, config("svm_rank"), QUIET)
    assert not list(run.glob(".rows*"))
    open_run(run)


def test_a_linear_ranker_of_ids_alone_is_the_same_as_operations():
    ranker = LinearRanker([Column("brand", 3, 0.0, 1.0)], np.array([0.5, -1.0, 2.0]))
    rows_of_ids = np.array([[2.0], [0.0], [1.0]], np.float32)
    np.testing.assert_array_equal(ranker.graph()(tf.constant(rows_of_ids)), [2.0, 0.5, -1.0])
    np.testing.assert_array_equal(ranker.predict(rows_of_ids), [2.0, 0.5, -1.0])


def test_a_linear_ranker_of_earlier_versions_loads(tmp_path):
    columns = [Column("price", None, 2.0, 4.0), Column("brand", 3)]
    ranker = LinearRanker(columns, np.array([1.0, 0.5, -1.0, 2.0]))
    old = {"names": ["price", "brand"], "sizes": [-1, 3], "means": [2.0, 0.0], "stds": [4.0, 1.0]}
    np.savez(tmp_path / "model.npz", weights=ranker.weights, **old)
    loaded = MODULES["svm_rank"].load(tmp_path / "model.npz", columns)
    values = np.array([[4.0, 2.0], [0.0, 1.0]], np.float32)
    np.testing.assert_array_equal(loaded.predict(values), ranker.predict(values))


def test_pairs_are_of_one_list_and_have_unequal_labels():
    labels, sizes = np.array([0.0, 1.0, 1.0, 0.0], np.float32), np.array([2, 2])
    better, worse = MODULES["svm_rank"].pairs_of(labels, sizes, 9, np.random.default_rng(0))
    assert (better.tolist(), worse.tolist()) == ([1, 2], [0, 3])


@pytest.mark.parametrize("model", ["lambdamart", "xgboost"])
def test_a_parameter_whose_colon_lacks_a_space_is_rejected(model):
    # As YAML reads `{num_leaves:7}`; LightGBM and XGBoost ignore a name without a value.
    with pytest.raises(UserError, match="'num_leaves:7' is not a name; is a space missing"):
        MODULES[model].settings_of({"num_leaves:7": None}, seed=1)
