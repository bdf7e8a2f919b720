"""Trees in TensorFlow score as the libraries that made them."""

import lightgbm
import numpy as np
import pytest
import xgboost

from tfr_moe._compat import tf
from tfr_moe.baselines.boosting import XGBoostRanker
from tfr_moe.baselines.forest import Forest, Node
from tfr_moe.baselines.lambdamart import LambdaMART
from tfr_moe.errors import UserError

LISTS, SIZE, CATEGORIES = 60, 20, 100


def rows(missing: bool) -> np.ndarray:
    """Two numbers, of which one is often 0, and a category, for whole lists."""
    rng = np.random.default_rng(0)
    number, sparse = rng.normal(size=(2, LISTS * SIZE))
    sparse[rng.random(len(sparse)) < 0.4] = 0.0
    category = rng.integers(0, CATEGORIES, len(number)).astype(float)
    columns = np.stack([number, sparse, category], axis=1).astype(np.float32)
    if missing:
        columns[:, :2][rng.random((len(number), 2)) < 0.2] = np.nan
    return columns


def labels(columns: np.ndarray) -> np.ndarray:
    numbers = np.nan_to_num(columns, nan=1.0)
    odd = numbers[:, 2].astype(int) % 3 == 1
    return odd + (numbers[:, 0] > 0) + (np.abs(numbers[:, 1]) < 0.5).astype(int)


def probes(columns: np.ndarray) -> np.ndarray:
    """The rows, and some whose categories are unknown and whose numbers are 0, huge or missing."""
    odd = np.array(
        [[0.0, 0.0, -1.0], [1e30, -1e30, 5000.0], [np.nan, np.nan, 3.0], [1e-36, -1e-36, 99.0]],
        np.float32,
    )
    return np.concatenate([columns, odd])


def lightgbm_of(columns: np.ndarray, rounds: int = 30, **parameters: object) -> LambdaMART:
    settings = {"objective": "lambdarank", "num_leaves": 15, "verbosity": -1, "num_threads": 1}
    data = lightgbm.Dataset(
        columns, labels(columns), group=[SIZE] * LISTS, categorical_feature=[2], params=parameters
    )
    return LambdaMART(lightgbm.train({**settings, **parameters}, data, rounds))


def assert_same(ranker: LambdaMART | XGBoostRanker, columns: np.ndarray, graph: bool) -> None:
    forest = ranker.graph()
    score = tf.function(forest, autograph=False) if graph else forest
    expected = ranker.predict(columns)
    assert len(np.unique(expected)) > 50
    # The libraries sum in float64 and float32.
    np.testing.assert_allclose(score(tf.constant(columns)), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"zero_as_missing": True},
        {"use_missing": False},
        {"max_cat_to_onehot": 200},
        {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5},
        {"boosting": "dart"},
    ],
    ids=str,
)
def test_lightgbm(parameters, missing):
    columns = rows(missing)
    assert_same(lightgbm_of(columns, **parameters), probes(columns), graph=not missing)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(
    "parameters", [{}, {"max_cat_to_onehot": 200}, {"grow_policy": "lossguide"}]
)
def test_xgboost(parameters, missing):
    columns = rows(missing)
    kinds = {"feature_types": ["q", "q", "c"], "enable_categorical": True}
    data = xgboost.DMatrix(columns, labels(columns), group=[SIZE] * LISTS, **kinds)
    settings = {"objective": "rank:ndcg", "tree_method": "hist", "base_score": 0.3, **parameters}
    ranker = XGBoostRanker(xgboost.train(settings, data, 30))
    assert_same(ranker, probes(columns), graph=not missing)


def test_the_trees_up_to_the_best_round():
    columns = rows(missing=False)
    ranker = lightgbm_of(columns)
    ranker._booster.best_iteration = 7
    few = lightgbm_of(columns, rounds=7)
    np.testing.assert_allclose(ranker.graph()(columns), few.predict(columns), rtol=1e-5, atol=1e-6)


def test_a_walk_by_hand():
    # A category of 3 or 40 goes left; on the right a number up to 2 does, a missing one does not.
    small = Node(children=(Node(10.0), Node(20.0)), threshold=2.0)
    root = Node(children=(Node(1.0), small), column=1, categories=(3, 40))
    forest = Forest([root, Node(0.5)], lambda node: node, offset=100.0, scale=2.0)
    numbers = [[5.0, 3.0], [5.0, 40.0], [2.0, 4.0], [2.5, 41.0], [np.nan, -1.0], [0.0, 999.0]]
    expected = [103.0, 103.0, 121.0, 141.0, 141.0, 121.0]
    np.testing.assert_array_equal(forest(tf.constant(numbers)), expected)


@pytest.mark.parametrize("count", [1, 4096, 4097, 8192])
def test_blocks_of_rows(count):
    forest = Forest([Node(children=(Node(0.0), Node(1.0)), threshold=7.0)], lambda node: node)
    numbers = np.arange(count) % 10
    rows = tf.constant(numbers[:, np.newaxis], tf.float32)
    np.testing.assert_array_equal(tf.function(forest)(rows), numbers > 7)


def test_no_splits_and_no_rows():
    forest = Forest([Node(0.25), Node(0.5)], lambda node: node)
    np.testing.assert_array_equal(forest(tf.zeros([3, 2])), [0.75] * 3)
    np.testing.assert_array_equal(forest(tf.zeros([0, 2])), [])


def test_what_is_no_sum_of_leaves_is_refused():
    columns = rows(missing=False)
    with pytest.raises(UserError, match="trees of linear_tree cannot be exported"):
        lightgbm_of(columns, linear_tree=True).graph()
    data = xgboost.DMatrix(columns, labels(columns), group=[SIZE] * LISTS)
    dart = XGBoostRanker(xgboost.train({"booster": "dart", "rate_drop": 0.5}, data, 3))
    with pytest.raises(UserError, match="booster dart cannot be exported"):
        dart.graph()
