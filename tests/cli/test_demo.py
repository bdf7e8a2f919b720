"""What the demo serves, and what it says about it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tfr_moe.cli.demo import MODELS, best_model, verdict
from tfr_moe.evaluation.significance import Comparison


def test_the_best_neural_model_on_validation_is_served(tmp_path: Path):
    values = dict(zip(MODELS, (0.71, 0.73, 0.72, 0.99), strict=True))
    assert MODELS[3] == "lambdamart"  # TensorFlow Serving takes no trees
    for model, value in values.items():
        (tmp_path / model).mkdir()
        result = json.dumps({"best": {"val_session_auc": value}})
        (tmp_path / model / "metrics.json").write_text(result)
    assert best_model(tmp_path) == MODELS[1]


@pytest.mark.parametrize(
    ("low", "high", "significance"),
    [
        (0.001, 0.005, "significant"),
        (-0.005, -0.001, "significant"),
        (-0.001, 0.005, "not significant"),
    ],
)
def test_the_verdict_says_whether_the_difference_is_significant(low, high, significance):
    middle = (low + high) / 2
    difference = Comparison(
        "session_auc", 0.7 + middle, 0.7, middle, low, high, 0.1, False, 1, 1, 500, "skip"
    )
    second = verdict("moe", difference).splitlines()[1]
    assert second == (
        f"Test session_auc minus that of dnn: {middle:+.4f} [{low:+.4f}, {high:+.4f}], "
        f"{significance} over lists"
    )


def test_the_baseline_is_not_compared_with_itself():
    assert verdict("dnn", None).endswith("of the neural models.")
