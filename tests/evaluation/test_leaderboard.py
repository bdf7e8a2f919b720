"""The leaderboard: order, references, differences and the sentences about them."""

import numpy as np
import pytest

from tests.evaluation.lists import result
from tfr_moe.evaluation.leaderboard import make_leaderboard

RUN = {"seconds": 10.0, "parameters": 100}
VALIDATION = {"dnn": 0.5, "lambdamart": 0.55, "wide_dnn": 0.45, "moe": 0.6}
TEST = {
    "dnn": [0.0, 1.0, 0.0, 1.0],
    "lambdamart": [1.0, 0.0, 1.0, 0.0],
    "wide_dnn": [0.0, 0.9, 0.0, 0.9],
    "moe": [0.1, 1.1, 0.1, 1.1],
}


@pytest.fixture(scope="module")
def board():
    runs = {model: {f"{model}/seed-1": RUN, f"{model}/seed-2": RUN} for model in TEST}
    runs["dnn"] = {"dnn/seed-1": {**RUN, "seconds": 4.0}, "dnn/seed-2": {**RUN, "seconds": 8.0}}
    return make_leaderboard(
        "mrr",
        # The second run of each model is better by 0.02 and the first worse.
        {m: [result([v - 0.01] * 4), result([v + 0.01] * 4)] for m, v in VALIDATION.items()},
        {model: [result(values), result(values)] for model, values in TEST.items()},
        runs,
        {"dnn": 0.1, "lambdamart": None, "wide_dnn": 0.1, "moe": 0.3},
    )


def test_models_are_ordered_and_referred_to_by_validation(board):
    assert [entry.model for entry in board.entries] == ["moe", "lambdamart", "dnn", "wide_dnn"]
    assert (board.ship, board.tree, board.tower) == ("moe", "lambdamart", "dnn")
    assert board.entries[0].best_run == "moe/seed-2"


def test_numbers_are_means_over_seeds(board):
    moe, _, dnn, _ = board.entries
    np.testing.assert_allclose((moe.validation, moe.test, dnn.test), (0.6, 0.6, 0.5))
    assert (dnn.seconds, dnn.parameters, moe.learning_rate) == (6.0, 100, 0.3)
    assert set(dnn.differences) == {"moe", "lambdamart"}
    assert dnn.differences["moe"].difference == pytest.approx(-0.1)
    assert dnn.differences["moe"].includes_seeds


def test_the_verdict_says_what_to_ship_and_what_is_not_significant(board):
    # 0.1 on every list is significant; from lambdamart the lists differ by -0.9 and +1.1.
    first, tree, tower, level = board.verdict.splitlines()
    assert first == "Ship moe: it has the best validation mrr (0.6000, 2 seeds each)."
    assert tree.startswith("Test mrr minus lambdamart, the best tree: +0.1000 [")
    assert tree.endswith("not significant.")
    assert tower == (
        "Test mrr minus dnn, the best single tower: +0.1000 [+0.1000, +0.1000], significant."
    )
    # Nor does wide_dnn differ on every list: it is lower by 0.1 and by 0.2.
    assert level.startswith("Not significantly different from moe on test: lambdamart")


def test_the_table_keeps_the_models_at_80_columns(board):
    table = board.table(80)
    assert [str(column.header) for column in table.columns][:4] == [
        "model",
        "test",
        "minus lambdamart",
        "minus dnn",
    ]
    models = [cell.plain for cell in table.columns[0].cells]
    assert models == [entry.model for entry in board.entries]
