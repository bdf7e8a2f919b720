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
    assert (board.ship, list(board.references)) == ("moe", ["lambdamart", "dnn"])
    assert board.entries[0].best_run == "moe/seed-2"


def test_numbers_are_means_over_seeds(board):
    moe, _, dnn, _ = board.entries
    np.testing.assert_allclose((moe.validation, moe.test, dnn.test), (0.6, 0.6, 0.5))
    assert (dnn.seconds, dnn.parameters, moe.learning_rate) == (6.0, 100, 0.3)
    assert set(dnn.differences) == {"moe", "lambdamart"}
    assert dnn.differences["moe"].difference == pytest.approx(-0.1)
    assert dnn.differences["moe"].includes_seeds


def test_intervals_of_means_are_over_lists(board):
    moe = board.entries[0]
    # 0.1, 1.1, 0.1, 1.1: standard error 0.57735 / 2, t(0.975, 3) = 3.18245.
    assert (moe.low, moe.high) == pytest.approx((0.6 - 0.91869, 0.6 + 0.91869), abs=1e-4)
    assert moe.by_run == pytest.approx([0.6, 0.6])


def test_the_verdict_says_what_won_what_is_level_and_what_to_ship(board):
    # 0.1 on every list is significant; from lambdamart the lists differ by -0.9 and +1.1.
    won, level, advice = board.verdict.splitlines()
    assert board.headline == "moe leads, but not significantly over lambdamart"
    mean = "Test mrr of moe: 0.6000 [-0.3187, 1.5187] (2 seeds each)"
    assert won.startswith(f"{board.headline}. {mean}")
    assert "(not significant) against lambdamart, the best tree, and " in won
    assert won.endswith(
        "+0.1000 [+0.1000, +0.1000] (significant) against dnn, the best single tower."
    )
    # Nor does wide_dnn differ on every list: it is lower by 0.1 and by 0.2.
    assert level.startswith("Not significantly different from moe: lambdamart")
    assert advice == "Ship moe."


def board_of(baseline=None, seeds=2, **values):
    """Equal runs of each model on four lists, ordered by these values."""
    results = {model: [result(of_lists)] * seeds for model, of_lists in values.items()}
    runs = {
        model: {f"{model}/{seed}": {**RUN, "seconds": 30.0 - 10 * i} for seed in range(seeds)}
        for i, model in enumerate(values)
    }
    rates = dict.fromkeys(values)
    return make_leaderboard("mrr", results, results, runs, rates, "test", baseline)


def test_a_model_that_beats_its_references_wins():
    board = board_of(moe=[0.7, 0.8, 0.9, 0.8], dnn=[0.6, 0.7, 0.7, 0.7], svm_rank=[0.1] * 4)
    assert board.headline == "moe wins"
    _, level, advice = board.verdict.splitlines()
    assert level == "All other models differ significantly from it."
    assert advice == "Ship moe."


def test_one_run_of_each_model_names_no_winner():
    board = board_of(seeds=1, moe=[0.7, 0.8, 0.9, 0.8], dnn=[0.6, 0.7, 0.7, 0.7])
    assert board.headline == "moe leads, by one training run each"
    won, level, advice = board.verdict.splitlines()
    # Differences 0.1, 0.1, 0.2, 0.1: standard error 0.025, t(0.975, 3) = 3.18245.
    assert "+0.1250 [+0.0454, +0.2046] (over lists only) against dnn" in won
    assert level == "With one training run each there is no winner: another run may differ by more."
    assert (
        "*" not in won and advice == "Ship moe, or dnn if training time matters (20 s, not 30 s)."
    )


def test_a_model_that_is_better_on_test_alone_is_named_but_not_chosen():
    runs = {"moe": {"moe/1": RUN, "moe/2": RUN}, "dnn": {"dnn/1": RUN, "dnn/2": RUN}}
    high, low = [result([0.7, 0.8, 0.9])] * 2, [result([0.5, 0.7, 0.7])] * 2
    validation, test = {"moe": high, "dnn": low}, {"moe": low, "dnn": high}
    board = make_leaderboard("mrr", validation, test, runs, dict.fromkeys(runs))
    assert board.headline == "moe leads on validation lists, dnn on test lists"
    _, level, advice = board.verdict.splitlines()
    assert level.endswith("Significantly better on test: dnn.") and advice == "Ship moe."


def test_without_a_significant_difference_the_cheapest_is_named():
    board = board_of(moe=[0.7, 0.5, 0.9, 0.2], dnn=[0.5, 0.7, 0.2, 0.8], svm_rank=[0.5] * 4)
    assert board.headline == "No significant winner: moe leads"
    _, level, advice = board.verdict.splitlines()
    assert level.startswith("Not significantly different from moe: dnn, svm_rank.")
    assert advice == "Ship moe, or svm_rank if training time matters (10 s, not 30 s)."


@pytest.mark.parametrize(("seconds", "cheaper"), [(8.0, False), (7.9, True)])
def test_a_fifth_less_time_is_no_reason_to_ship_another_model(seconds, cheaper):
    runs = {"moe": {"moe/1": RUN}, "dnn": {"dnn/1": {**RUN, "seconds": seconds}}}
    values = {"moe": [result([0.7, 0.8])], "dnn": [result([0.6, 0.7])]}
    board = make_leaderboard("mrr", values, values, runs, dict.fromkeys(values))
    assert board.verdict.endswith("if training time matters (8 s, not 10 s).") is cheaper
    assert board.verdict.endswith("Ship moe.") is not cheaper


def test_a_model_that_is_level_with_one_that_is_no_reference_does_not_win():
    # Only svm_rank is a tree or linear ranker, and dnn the best single tower: moe is neither.
    values = {"dnn": [0.7, 0.8, 0.9, 0.8], "moe": [0.8, 0.7, 0.8, 0.9], "svm_rank": [0.1] * 4}
    board = board_of(**values)
    assert set(board.references) == {"svm_rank", "dnn"}
    assert board.headline == "dnn leads, but not significantly over moe"


def test_a_model_that_trains_as_fast_is_no_cheaper_one():
    run = {"a": {**RUN, "seconds": 4.6}, "b": {**RUN, "seconds": 5.4}}
    results = {"moe": [result([0.5, 0.6])] * 2, "dnn": [result([0.6, 0.5])] * 2}
    runs = {"moe": {"a": run["b"], "b": run["b"]}, "dnn": {"a": run["a"], "b": run["a"]}}
    board = make_leaderboard("mrr", results, results, runs, dict.fromkeys(results))
    assert board.verdict.splitlines()[-1] == "Ship moe."


def test_a_baseline_takes_the_place_of_tree_and_tower():
    board = board_of("dnn", moe=[0.7, 0.8, 0.9, 0.8], dnn=[0.6, 0.7, 0.7, 0.7], svm_rank=[0.1] * 4)
    assert board.references == {"dnn": "the baseline"}
    # A baseline that leads is compared with the second.
    board = board_of("dnn", moe=[0.6, 0.7, 0.7, 0.7], dnn=[0.7, 0.8, 0.9, 0.8])
    assert board.headline == "dnn wins" and "against moe, the second" in board.verdict


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


def test_the_table_has_dashes_for_what_is_not_known(board):
    cells = {str(of.header): [c.plain for c in of.cells] for of in board.table().columns}
    assert cells["rate"] == ["0.3", "–", "0.1", "0.1"]  # lambdamart has no learning rate
    results = {"moe": [result([0.5, 0.6])]}
    unknown = make_leaderboard("mrr", results, results, {"moe": {"a": {}}}, {"moe": None})
    cells = {str(of.header): [c.plain for c in of.cells] for of in unknown.table().columns}
    assert (cells["parameters"], cells["rate"], cells["time"]) == (["–"], ["–"], ["–"])
