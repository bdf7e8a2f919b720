"""The study of position bias: its log, its intervals, and the table from stored results."""

import numpy as np
import pytest

from experiments.studies.position_bias import (
    MODELS,
    PositionBiasSettings,
    generated_frame,
    log_options,
    summarize,
)

SETTINGS = PositionBiasSettings(sessions=1500, test_sessions=100)


def test_clicks_are_relevance_times_examination():
    frame = generated_frame(log_options(SETTINGS, 1.0, 1))
    for position in (1, 2, 4):
        rows = frame[frame.position == position]
        expected = (rows.relevance / position).mean()
        # Four standard deviations of a mean of 1,600 clicks.
        error = 4 * np.sqrt(expected * (1 - expected) / len(rows))
        assert rows.click.mean() == pytest.approx(expected, abs=error)


def test_gains_are_paired_by_seed():
    rows = [
        {
            "strength": 1.0,
            "model": model,
            "ndcg": 0.8 + 0.1 * seed + (0.01 * seed if model == "DNN, tower" else 0.0),
            "curve": {"bias": [0.0, -0.5 * seed]},
        }
        for seed in (1, 2)
        for model in MODELS
    ]
    content = summarize(rows)["1"]
    # Differences 0.01 and 0.02; Student's t of one degree of freedom is 12.706.
    assert content["DNN, tower"]["gain"] == pytest.approx((0.015, 12.706 * 0.005), abs=1e-4)
    assert content["LightGBM, position"]["gain"] == pytest.approx((0.0, 0.0))
    assert content["curve"][1] == pytest.approx((-0.75, 12.706 * 0.25), abs=1e-3)
