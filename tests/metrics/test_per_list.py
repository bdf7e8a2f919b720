import numpy as np
import pytest
from sklearn.metrics import ndcg_score, roc_auc_score

from tests.evaluation.lists import one_list, random_batch
from tfr_moe.errors import UserError
from tfr_moe.evaluation.results import evaluate_lists, summarize
from tfr_moe.metrics.per_list import ListBatch, first_shown, resolve

ALL = (
    "session_auc",
    "session_auc_shown_10",
    "session_auc_shown_3",
    "ndcg",
    "ndcg_shown_10",
    "ndcg_4",
    "mrr",
    "mrr_3",
    "map",
    "map_10",
    "precision_5",
)


def value(name, scores, labels, positions=None):
    return resolve(name)(one_list(scores, labels, positions))[0]


def rows(batch):
    """The valid items of each list, one list at a time."""
    for i, keep in enumerate(batch.mask):
        yield i, batch.scores[i, keep], batch.labels[i, keep], batch.positions[i, keep]


# Worked out by hand. Scores order the items 4, 1, 3, 2; grades in that order are 0, 2, 0, 1.
SCORES, LABELS = [0.7, 0.1, 0.4, 0.9], [2, 1, 0, 0]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Pairs (1,3) right, (1,4) wrong, (2,3) wrong, (2,4) wrong.
        ("session_auc", 1 / 4),
        ("ndcg", (3 / np.log2(3) + 1 / np.log2(5)) / (3 + 1 / np.log2(3))),
        ("ndcg_1", 0.0),
        ("ndcg_2", (3 / np.log2(3)) / (3 + 1 / np.log2(3))),
        ("mrr", 1 / 2),
        ("mrr_1", 0.0),
        ("map", (1 / 2 + 2 / 4) / 2),
        ("map_3", (1 / 2) / 2),
        ("precision_1", 0.0),
        ("precision_2", 1 / 2),
        ("precision_5", 2 / 5),
        ("prm_precision_2", 1 / 2),
        ("prm_precision_5", 2 / 5),
        ("prm_map_2", (1 / 2) / 2),
        ("prm_map_4", (1 / 2 + 2 / 4) / 4),
    ],
)
def test_values_worked_out_by_hand(name, expected):
    assert value(name, SCORES, LABELS) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("policy", ["skip", "zero", "one"])
def test_lists_without_a_click_count_zero_in_the_metrics_of_prm(policy):
    """Two lists: one click ranked first of three, and none."""
    lists = ListBatch(
        scores=np.array([[3.0, 2.0, 1.0]] * 2),
        labels=np.array([[1, 0, 0], [0, 0, 0]]),
        mask=np.ones((2, 3), bool),
        list_ids=np.array(["a", "b"]),
    )
    actual = summarize(evaluate_lists([lists], ["prm_precision_2", "prm_map_2"]), policy)
    assert [actual[name].mean for name in actual] == [0.25, 0.25]
    assert [actual[name].evaluated for name in actual] == [2, 2]


def test_auc_of_tied_scores_counts_half():
    # Relevant 2.0 against 1.0, 2.0, 3.0: right, half, wrong.
    assert value("session_auc", [2, 1, 2, 3], [1, 0, 0, 0]) == pytest.approx(1.5 / 3)
    assert value("session_auc", [5, 5, 5], [1, 0, 1]) == 0.5


def test_auc_ignores_the_order_of_grades_among_relevant_items():
    assert value("session_auc", [1, 2, 0], [3, 1, 0]) == 1.0


def test_rank_ties_go_by_the_order_in_the_record():
    assert value("mrr", [1, 1, 1], [0, 0, 1]) == pytest.approx(1 / 3)
    assert value("mrr", [1, 1, 1], [1, 0, 0]) == 1.0


def test_shown_cutoff_takes_the_smallest_positions_not_the_first_of_the_record():
    # Shown first: items 3 (position 1) and 4 (position 2); the record has 1 and 2 in front.
    scores, labels, positions = [4, 3, 1, 2], [1, 0, 1, 0], [3, 4, 1, 2]
    assert value("session_auc_shown_2", scores, labels, positions) == 0.0
    assert value("ndcg_shown_2", scores, labels, positions) == pytest.approx(1 / np.log2(3))
    with pytest.raises(
        UserError, match="'session_auc_shown_2' is undefined without display positions"
    ):
        value("session_auc_shown_2", scores, labels)


def test_unknown_positions_come_after_the_known_ones():
    mask = np.ones((1, 4), bool)
    positions = np.array([[0.0, np.nan, 7.0, 2.0]])
    assert first_shown(mask, positions, 2).tolist() == [[False, False, True, True]]
    assert first_shown(mask, positions, 3).tolist() == [[True, False, True, True]]


def test_equal_positions_go_by_the_order_in_the_record():
    assert first_shown(np.ones((1, 3), bool), np.array([[1, 1, 1]]), 2).tolist() == [[1, 1, 0]]


def test_shown_cutoff_beyond_the_list_changes_nothing():
    batch = random_batch(np.random.default_rng(1), length=9)
    for family in ("session_auc", "ndcg"):
        np.testing.assert_array_equal(
            resolve(family)(batch), resolve(f"{family}_shown_10")(batch), strict=True
        )


@pytest.mark.parametrize("tied", [False, True])
def test_auc_equals_scikit_learn(tied):
    batch = random_batch(np.random.default_rng(2), lists=200, tied=tied)
    got = resolve("session_auc")(batch)
    evaluated = 0
    for i, scores, labels, _ in rows(batch):
        if len(set(labels > 0)) == 2:
            assert got[i] == pytest.approx(roc_auc_score(labels > 0, scores), rel=1e-12)
            evaluated += 1
        else:
            assert np.isnan(got[i])
    assert evaluated > 100


@pytest.mark.parametrize("cut", [None, 1, 4])
def test_ndcg_equals_scikit_learn_with_exponential_gains(cut):
    batch = random_batch(np.random.default_rng(3), lists=200)
    got = resolve("ndcg" if cut is None else f"ndcg_{cut}")(batch)
    evaluated = 0
    for i, scores, labels, _ in rows(batch):
        if len(labels) < 2 or not labels.any():  # scikit-learn refuses lists of one item
            continue
        expected = ndcg_score([2**labels - 1], [scores], k=cut, ignore_ties=True)
        assert got[i] == pytest.approx(expected, rel=1e-12)
        evaluated += 1
    assert evaluated > 100


def test_shown_cutoffs_equal_scikit_learn_on_the_sub_list():
    batch = random_batch(np.random.default_rng(4), lists=200)
    auc, gain = resolve("session_auc_shown_5")(batch), resolve("ndcg_shown_5")(batch)
    evaluated = 0
    for i, scores, labels, positions in rows(batch):
        first = np.argsort(positions)[:5]
        scores, labels = scores[first], labels[first]
        if len(set(labels > 0)) == 2:
            assert auc[i] == pytest.approx(roc_auc_score(labels > 0, scores), rel=1e-12)
            expected = ndcg_score([2**labels - 1], [scores], ignore_ties=True)
            assert gain[i] == pytest.approx(expected, rel=1e-12)
            evaluated += 1
        else:
            assert np.isnan(auc[i])
    assert evaluated > 100


def test_rank_metrics_equal_ir_measures():
    ir_measures = pytest.importorskip("ir_measures")
    batch = random_batch(np.random.default_rng(5), lists=150)
    qrels, run = [], []
    for i, scores, labels, _ in rows(batch):
        for item, (score, label) in enumerate(zip(scores, labels, strict=True)):
            qrels.append(ir_measures.Qrel(f"q{i}", str(item), int(label > 0)))
            run.append(ir_measures.ScoredDoc(f"q{i}", str(item), float(score)))
    measures = {
        "mrr": ir_measures.RR,
        "mrr_3": ir_measures.RR @ 3,
        "map": ir_measures.AP,
        "map_3": ir_measures.AP @ 3,
        "map_10": ir_measures.AP @ 10,
        "precision_5": ir_measures.P @ 5,
    }
    expected = {
        (m.query_id, m.measure): m.value
        for m in ir_measures.iter_calc(list(measures.values()), qrels, run)
    }
    for name, measure in measures.items():
        got = resolve(name)(batch)
        evaluated = np.flatnonzero(~np.isnan(got))
        assert len(evaluated) > 100
        for i in evaluated:
            assert got[i] == pytest.approx(expected[f"q{i}", measure], rel=1e-6), (name, i)


@pytest.mark.parametrize("name", ALL)
def test_metrics_are_undefined_without_a_relevant_item(name):
    batch = one_list([3, 2, 1], [0, 0, 0], [1, 2, 3])
    assert np.isnan(resolve(name)(batch))
    assert resolve(name).nothing_relevant(batch).tolist() == [True]


def test_a_list_with_nothing_irrelevant_has_no_auc_and_else_full_marks():
    batch = one_list([3, 2, 1], [1, 1, 1])
    assert np.isnan(resolve("session_auc")(batch)[0])
    assert not resolve("session_auc").nothing_relevant(batch)[0]
    for name in ("ndcg", "mrr", "map_10", "precision_3"):
        assert resolve(name)(batch)[0] == 1.0


def test_a_list_of_one_item():
    relevant = {name: value(name, [0.3], [1], [1]) for name in ALL}
    assert np.isnan([relevant.pop(n) for n in ALL if n.startswith("session_auc")]).all()
    assert relevant.pop("precision_5") == 1 / 5
    assert set(relevant.values()) == {1.0}


def test_an_empty_list_is_not_judged():
    for length in (0, 3):
        mask = np.zeros((1, length), bool)
        batch = ListBatch(mask * 1.0, mask * 1.0, mask, np.array(["q"]), mask * 1.0)
        for name in ALL:
            assert np.isnan(resolve(name)(batch)).tolist() == [True]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("tied", [False, True])
def test_padding_has_no_effect_whatever_stands_there(name, tied):
    rng = np.random.default_rng(6)
    batch = random_batch(rng, tied=tied)
    width = 5
    widen = [(0, 0), (width, width)]
    for score, label, position in [(np.inf, 1, 1), (-np.inf, 0, 0), (np.nan, -1, np.nan)]:
        mask = np.pad(batch.mask, widen)
        padded = ListBatch(
            scores=np.where(mask, np.pad(batch.scores, widen), score),
            labels=np.where(mask, np.pad(batch.labels, widen), label),
            mask=mask,
            list_ids=batch.list_ids,
            positions=np.where(mask, np.pad(batch.positions, widen), position),
        )
        # Sums of other lengths round differently: a few units in the last place.
        np.testing.assert_allclose(resolve(name)(padded), resolve(name)(batch), rtol=1e-13)


def test_infinite_scores_are_ordered_before_padding():
    batch = ListBatch(
        scores=np.array([[9.0, -np.inf, np.inf]]),
        labels=np.array([[1.0, 1.0, 0.0]]),
        mask=np.array([[False, True, True]]),
        list_ids=np.array(["q"]),
    )
    assert resolve("mrr")(batch)[0] == 0.5
    assert resolve("session_auc")(batch)[0] == 0.0


@pytest.mark.parametrize("name", ALL)
def test_a_growing_transform_of_the_scores_changes_nothing(name):
    batch = random_batch(np.random.default_rng(7))
    moved = ListBatch(
        np.exp(batch.scores) * 3, batch.labels, batch.mask, batch.list_ids, batch.positions
    )
    np.testing.assert_array_equal(resolve(name)(moved), resolve(name)(batch))


def test_long_lists_take_memory_in_proportion_to_their_length():
    import tracemalloc

    rng = np.random.default_rng(8)
    batch = ListBatch(
        rng.normal(size=(64, 1000)),
        (rng.random((64, 1000)) < 0.3) * 1.0,
        np.ones((64, 1000), bool),
        np.arange(64).astype(str),
    )
    tracemalloc.start()
    resolve("session_auc")(batch)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 * batch.scores.nbytes  # all pairs would take 1,000 times as much


@pytest.mark.parametrize(
    "name", ["accuracy", "precision", "ndcg_0", "ndcg_-1", "map_x", "ranked_ndcg", "", "NDCG"]
)
def test_an_unknown_name_is_refused_and_the_names_listed(name):
    with pytest.raises(UserError, match=r"session_auc, .*ndcg, ndcg_k, .*precision_k") as caught:
        resolve(name)
    assert repr(name) in str(caught.value)


def test_bad_batches_are_refused_by_list_and_item():
    good = random_batch(np.random.default_rng(9), lists=2, length=3)
    with pytest.raises(
        UserError, match=r"labels must have the shape of scores, \(2, 3\)\. Received: \(2, 2\)"
    ):
        ListBatch(good.scores, good.labels[:, :2], good.mask, good.list_ids).check()
    with pytest.raises(UserError, match=r"list_ids must have shape \(2,\)\. Received: \(1,\)"):
        ListBatch(good.scores, good.labels, good.mask, good.list_ids[:1]).check()
    with pytest.raises(UserError, match="list 'q', item 2: score nan must be a number"):
        one_list([1, np.nan], [0, 1]).check()
    for label in (-1, np.nan, 5000):
        with pytest.raises(UserError, match=r"list 'q', item 1: label .* must be from 0 to 1000"):
            one_list([1, 2], [label, 1]).check()


def test_clicks_are_weighted_by_inverse_propensities():
    batch = ListBatch(
        scores=np.array([SCORES, SCORES, SCORES]),
        labels=np.array([[1, 1, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0]]),
        mask=np.array([[True] * 4, [True] * 4, [True, False, True, True]]),
        list_ids=np.array(["a", "b", "c"]),
        weights=np.array([[2.0, 5.0, 1.0, 1.0]] * 3),
    )
    # Ranks of the clicked items are 2 and 4; in the last list the clicked place is padding.
    expected = [2 / np.log2(3) + 5 / np.log2(5), 0.0, 0.0]
    np.testing.assert_allclose(resolve("ips_dcg")(batch), expected)
    np.testing.assert_allclose(resolve("ips_dcg_3")(batch), [2 / np.log2(3), 0.0, 0.0])
    with pytest.raises(UserError, match="has no `weight`"):
        resolve("ips_dcg")(one_list(SCORES, LABELS))


def test_examination_biases_the_dcg_of_clicks_and_not_the_weighted_one():
    """Two orders of equal items: clicks alone favour the one in which the log was shown."""
    rng = np.random.default_rng(1)
    lists, length = 20_000, 4
    examination = 1.0 / np.arange(1, length + 1)
    clicks = (rng.random((lists, length)) < 0.3) & (rng.random((lists, length)) < examination)
    logged = np.tile(-np.arange(length, dtype=float), (lists, 1))
    means = {}
    for name, scores in (("as shown", logged), ("reversed", -logged)):
        for metric, weights in (("clicks", np.ones(length)), ("weighted", 1 / examination)):
            batch = ListBatch(
                scores,
                clicks.astype(float),
                np.ones(clicks.shape, bool),
                np.arange(lists).astype(str),
                weights=np.tile(weights, (lists, 1)),
            )
            means[metric, name] = resolve("ips_dcg")(batch).mean()
    truth = 0.3 * np.sum(1 / np.log2(2 + np.arange(length)))
    assert means["clicks", "as shown"] - means["clicks", "reversed"] > 0.1
    assert means["weighted", "as shown"] == pytest.approx(truth, abs=0.02)
    assert means["weighted", "reversed"] == pytest.approx(truth, abs=0.02)
