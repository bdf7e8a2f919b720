"""Gate maps by hand."""

import math

import numpy as np
import pytest

from tests.scorers.batch import RERANKING, TABLES, raw_batch
from tests.tiny import SCHEMA
from tfr_moe._compat import tf
from tfr_moe.schema import MASK
from tfr_moe.scorers import create, explanation_model
from tfr_moe.scorers.gate_maps import GateMap, gate_reports

MASK_2 = np.array([[True, True, True], [True, False, False]])
NAMES = np.array(["a", "a"], object), np.array(["x", "y"], object)


def by_list():
    """Three items with experts 0 and 1, one item with expert 0 alone."""
    gate = GateMap(4)
    weights = np.array([[0.5, 0.5], [1.0, 0.0]])
    gate.add(np.array([[0, 1], [0, 2]]), weights, MASK_2, *NAMES)
    return gate.report()


def test_items_count_and_not_lists():
    actual = by_list()
    assert (actual.lists, actual.items, actual.top_k) == (2, 4, 2)
    assert actual.utilisation == [(1.5 + 1) / 4, 1.5 / 4, 0.0, 0.0]
    assert actual.load == [1.0, 0.75, 0.0, 0.0]
    assert actual.dead == [2, 3]
    assert actual.entropy == pytest.approx(0.75 * math.log(2))


def test_a_category_is_the_mean_over_its_lists_and_siblings_are_compared():
    actual = by_list()
    (top,) = actual.top_categories
    assert (top.parent, top.lists, top.weights) == ("a", 2, [0.75, 0.25, 0.0, 0.0])
    assert [(row.child, row.weights) for row in actual.sub_categories] == [
        ("x", [0.5, 0.5, 0.0, 0.0]),
        ("y", [1.0, 0.0, 0.0, 0.0]),
    ]
    # (0.5, 0.5) and (1, 0) stand at 45 degrees.
    assert actual.within_category_similarity == pytest.approx(math.sqrt(0.5))
    assert actual.between_category_similarity is None


def test_similarities_are_means_over_all_pairs():
    rng = np.random.default_rng(0)
    weights = rng.dirichlet([1, 1, 1], 7)
    parents = np.array(list("aaabbbb"), object)
    children = np.array(list("stuvwxy"), object)
    gate = GateMap(3)
    ids = np.tile(np.arange(3), (7, 1))
    gate.add(ids, weights, np.ones([7, 2], bool), parents, children)
    units = weights / np.linalg.norm(weights, axis=1, keepdims=True)
    pairs = [(i, j) for i in range(7) for j in range(i)]
    inside = [units[i] @ units[j] for i, j in pairs if parents[i] == parents[j]]
    outside = [units[i] @ units[j] for i, j in pairs if parents[i] != parents[j]]
    actual = gate.report()
    assert actual.within_category_similarity == pytest.approx(np.mean(inside))
    assert actual.between_category_similarity == pytest.approx(np.mean(outside))


def test_a_choice_of_items_is_that_of_lists_where_all_items_choose_alike():
    weights = np.array([[0.6, 0.4], [0.9, 0.1]])
    ids = np.array([[1, 3], [0, 2]])
    one, other = GateMap(4), GateMap(4)
    one.add(ids, weights, MASK_2, *NAMES)
    wide = [np.repeat(part[:, np.newaxis], 3, axis=1) for part in (ids, weights)]
    other.add(*wide, MASK_2, *NAMES)
    for name, value in vars(one.report()).items():
        if isinstance(value, float | list) and "categories" not in name:
            assert vars(other.report())[name] == pytest.approx(value)


def test_lists_without_items_are_no_lists():
    gate = GateMap(2)
    gate.add(np.array([[0]]), np.ones([1, 1]), np.zeros([1, 2], bool))
    assert gate.report().lists == 0


@pytest.mark.parametrize(
    ("name", "gates"),
    [
        ("dnn", []),
        ("star", []),
        ("adv_hsc_moe", [""]),
        ("ple", [""]),
        ("mmoe", ["click", "purchase"]),
    ],
)
def test_the_gates_of_a_model_are_those_that_it_explains_itself_by(name, gates):
    settings = {
        **RERANKING,
        "num_experts": 4,
        "top_k": 2,
        "tasks": {"click": None, "purchase": None},
    }
    model = create(name, SCHEMA, TABLES, settings).build_model()
    batch = raw_batch()
    dataset = tf.data.Dataset.from_tensors((batch, tf.zeros([5, 4]), {}))
    actual = gate_reports(model, dataset, SCHEMA)
    assert list(actual) == gates
    for gate, gate_map in actual.items():
        suffix = f"_{gate}" if gate else ""
        explained = explanation_model(model)(batch)
        weights = explained[f"expert_weights{suffix}"].numpy()
        mask = np.asarray(batch[MASK])
        assert gate_map.items == mask.sum()
        assert sum(gate_map.utilisation) == pytest.approx(1)
        chosen = explained[f"expert_ids{suffix}"].numpy()
        mass = mask.sum(axis=1)[:, None] if weights.ndim == 2 else mask[..., None]
        share = (weights * mass * (chosen == 0)).sum() / mask.sum()
        assert gate_map.utilisation[0] == pytest.approx(share, abs=1e-6)
