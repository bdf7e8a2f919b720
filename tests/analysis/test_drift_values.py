"""The values that drift compares: after the transforms, by the statistics of the reference."""

import numpy as np

from tfr_moe.analysis.drift_values import values_of
from tfr_moe.schema import MASK, FeatureSchema


def test_numbers_are_those_that_the_model_of_the_reference_reads():
    number = {"kind": "numeric", "scope": "example"}
    features = [
        {"name": "price", **number, "ratio": "usual", "transform": "quantile"},
        {"name": "usual", **number, "clip": [None, 3]},
    ]
    schema = FeatureSchema(list_id="q", labels=["y"], features=features)
    column = {"quantiles": [1.0, 2.0], "positions": [0.25, 0.75]}
    batch = {
        MASK: np.array([[True, True], [True, False]]),
        "y": np.zeros([2, 2, 1], np.float32),
        "example_numeric": np.array(
            [[[6.0, 4.0], [8.0, 1.0]], [[5.0, 0.0], [0.0, 0.0]]], np.float32
        ),
    }
    actual = dict(values_of(schema, {"context": {}, "example": {"price": column}}, batch))
    # 6 / 4 is halfway; 8 / 1 above all; 5 / 0 is missing.
    np.testing.assert_allclose(actual["price"].values, [0.5, 0.75, np.nan])
    np.testing.assert_allclose(actual["price"].stored, [1.5, 8.0, np.nan])
    np.testing.assert_allclose(actual["usual"].values, [3.0, 1.0, 0.0])
    np.testing.assert_allclose(actual["usual"].stored, [4.0, 1.0, 0.0])
    np.testing.assert_array_equal(actual["usual"].lists, [0, 0, 1])
