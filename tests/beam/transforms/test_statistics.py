import cloudpickle
import numpy as np
import pytest

from tfr_moe.beam.transforms.make_lists import RankedList
from tfr_moe.beam.transforms.training_tables import SumLists
from tfr_moe.elwc.encoder import scope_floats
from tfr_moe.elwc.statistics import merge, merge_scopes, moments_of, statistics_of
from tfr_moe.schema import FeatureSchema

SCHEMA = FeatureSchema(
    list_id="q",
    labels=["y"],
    features=[
        {"name": "age", "scope": "context", "kind": "numeric"},
        {"name": "brand", "scope": "example", "kind": "categorical"},
        {"name": "pair", "scope": "example", "kind": "numeric", "width": 2},
        {"name": "price", "scope": "example", "kind": "numeric", "transform": "log1p"},
    ],
)


def test_merged_moments_are_those_of_all_rows():
    rows = np.random.default_rng(0).normal(1e6, 1.0, (1000, 3))
    merged = moments_of(np.zeros((0, 3)))
    for part in np.split(rows, [0, 1, 400, 1000]):
        merged = merge(merged, moments_of(part))
    assert merged.rows == 1000
    np.testing.assert_allclose(merged.mean, rows.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(np.sqrt(merged.m2 / 1000), rows.std(axis=0), rtol=1e-9)
    np.testing.assert_array_equal(merged.low, rows.min(axis=0))
    np.testing.assert_array_equal(merged.high, rows.max(axis=0))


def ranked(name, age, items):
    """A list of items (brand, pair, price) with a label each."""
    context = scope_floats(SCHEMA, "context").pack([age]), ()
    block = scope_floats(SCHEMA, "example")
    bodies = [block.pack([*pair, price, 1.0]) for _, pair, price in items]
    return RankedList(name, None, context, [(body, ("x",)) for body in bodies])


def moments_of_bundle(lists):
    """The moments that a worker emits for the lists of a bundle."""
    summing = cloudpickle.loads(cloudpickle.dumps(SumLists(SCHEMA)))
    summing.setup()
    summing.start_bundle()
    for one in lists:
        assert list(summing.process(one)) == []
    (moments,) = [
        out.value.value for out in summing.finish_bundle() if getattr(out, "tag", None) == "moments"
    ]
    return moments


@pytest.mark.parametrize("parts", [1, 3])
def test_statistics_of_wide_and_logarithmic_features_by_hand(parts):
    lists = [
        ranked("a", 10.0, [("x", [1.0, 5.0], 0.0), ("y", [3.0, 5.0], -1.0)]),
        ranked("b", 20.0, [("z", [5.0, 5.0], 1.0)]),
        ranked("c", 60.0, [("z", [7.0, 5.0], 0.0)]),
    ]
    moments = merge_scopes(moments_of_bundle(lists[part::parts]) for part in range(parts))
    actual = statistics_of(SCHEMA, moments)
    # Ages 10, 20, 60: mean 30, variance (400 + 100 + 900) / 3.
    assert actual["context"]["age"] == pytest.approx(
        {"count": 3, "mean": 30.0, "std": (1400 / 3) ** 0.5, "min": 10.0, "max": 60.0}
    )
    assert list(actual["example"]) == ["pair[0]", "pair[1]", "price"]
    # 1, 3, 5, 7: mean 4, variance (9 + 1 + 1 + 9) / 4 = 5.
    assert actual["example"]["pair[0]"] == pytest.approx(
        {"count": 4, "mean": 4.0, "std": 5**0.5, "min": 1.0, "max": 7.0}
    )
    assert actual["example"]["pair[1]"]["std"] == 0.0
    # log1p of 0, -1, 1, 0 with the sign kept: 0, -log 2, log 2, 0.
    assert actual["example"]["price"] == pytest.approx(
        {
            "count": 4,
            "mean": 0.0,
            "std": np.log(2) / 2**0.5,
            "min": -np.log(2),
            "max": np.log(2),
        }
    )


def test_no_lists_give_no_columns():
    assert statistics_of(SCHEMA, moments_of_bundle([])) == {"context": {}, "example": {}}
