"""The synthetic study's numbers from losses that were written down by hand."""

import math

import pytest

from experiments.mmoe.synthetic_summary import Losses, finding, mean_cell, summarize, tables

LOSSES = {
    # model: correlation -> losses of seeds 0 and 1
    "shared_bottom": {0.5: (0.30, 0.34), 1.0: (0.20, 0.22)},
    "mmoe": {0.5: (0.21, 0.23), 1.0: (0.20, 0.20)},
}


def runs(losses):
    return [
        {"model": model, "correlation": p, "seed": seed, "loss": loss}
        for model, row in losses.items()
        for p, cell in row.items()
        for seed, loss in enumerate(cell)
    ]


def test_degradation_is_taken_seed_by_seed():
    losses = Losses(list(reversed(runs(LOSSES))))
    assert losses.degradation("shared_bottom", 0.5) == pytest.approx([0.10, 0.12])
    assert losses.degradation("mmoe", 0.5) == pytest.approx([0.01, 0.03])


def test_the_summary_by_hand():
    summary = summarize(Losses(runs(LOSSES)))
    assert summary["runs"] == 2
    cell = summary["loss"]["shared_bottom"]["0.5"]
    assert cell["mean"] == pytest.approx(0.32)
    assert cell["median"] == pytest.approx(0.32)
    assert cell["lower_quartile"] == pytest.approx(0.31)
    # With two runs the 95 % t quantile is 12.706, and the standard error half the difference: 0.02.
    assert cell["high"] - cell["mean"] == pytest.approx(12.706 * 0.02, rel=1e-4)
    assert summary["gain"]["mmoe"]["0.5"]["mean"] == pytest.approx(0.10)  # 0.32 - 0.22
    assert summary["gain"]["mmoe"]["1.0"]["mean"] == pytest.approx(0.01)  # 0.21 - 0.20
    less = summary["less_degradation"]["mmoe"]["0.5"]
    # (0.10 - 0.01, 0.12 - 0.03): 0.09 for both seeds.
    assert less["mean"] == pytest.approx(0.09)
    assert less["standard_deviation"] == pytest.approx(0, abs=1e-12)


def test_the_finding_says_higher_only_where_the_interval_does():
    clear = {
        "shared_bottom": {0.5: (0.30, 0.31, 0.32), 1.0: (0.20, 0.21, 0.21)},
        "mmoe": {0.5: (0.21, 0.22, 0.22), 1.0: (0.20, 0.21, 0.21)},
        "omoe": {0.5: (0.35, 0.20, 0.40), 1.0: (0.20, 0.21, 0.21)},
    }
    lines = finding(summarize(Losses(runs(clear))))
    assert "shared_bottom at correlation 0.5: loss higher than" in lines[0]
    assert "mmoe at correlation 0.5: degrades less than shared_bottom" in lines[1]
    assert "omoe at correlation 0.5: degrades not measurably less or more" in lines[2]


def test_the_finding_goes_by_ranks_which_one_stuck_run_does_not_move():
    stuck = {
        "shared_bottom": {0.5: (0.31, 0.32, 0.33, 0.34, 0.35, 0.36), 1.0: (0.2,) * 6},
        "mmoe": {0.5: (0.21, 0.21, 0.21, 0.21, 0.21, 0.21), 1.0: (0.2,) * 5 + (0.99,)},
    }
    summary = summarize(Losses(runs(stuck)))
    # 0.10, 0.11, 0.12, 0.13, 0.14 and 0.16 + 0.78: the mean's interval holds 0.
    less = summary["less_degradation"]["mmoe"]["0.5"]
    assert less["low"] < 0 < less["high"]
    # With six values only the lowest and the highest of their means are left out: 1 / 2^6 <= 0.025.
    assert less["by_ranks"]["low"] == pytest.approx(0.10)
    assert less["by_ranks"]["high"] == pytest.approx(0.94)
    line = finding(summary)[1]
    assert "degrades less than shared_bottom" in line
    assert line.endswith("; by ranks +0.1250 [+0.1000, +0.9400], Wilcoxon p = 0.0312")


def test_correlations_below_the_highest_speak_together_too():
    three = {
        "shared_bottom": {0.5: (0.30, 0.40), 0.9: (0.24, 0.30), 1.0: (0.20, 0.20)},
        "mmoe": {0.5: (0.22, 0.22), 0.9: (0.20, 0.20), 1.0: (0.20, 0.20)},
    }
    summary = summarize(Losses(runs(three)))
    # (0.10 + 0.04) / 2 and (0.20 + 0.10) / 2, of which mmoe has 0.01 each.
    assert summary["degradation"]["shared_bottom"]["together"]["mean"] == pytest.approx(0.11)
    assert summary["less_degradation"]["mmoe"]["together"]["mean"] == pytest.approx(0.10)
    assert "over all lower correlations: degrades" in finding(summary)[-1]


def test_one_run_has_no_interval_and_no_finding():
    single = {model: {p: cell[:1] for p, cell in row.items()} for model, row in LOSSES.items()}
    summary = summarize(Losses(runs(single)))
    assert mean_cell(summary["loss"]["mmoe"]["1.0"]) == "0.2000"
    assert math.isnan(summary["degradation"]["mmoe"]["0.5"]["p_value"])
    assert "not measurably" in finding(summary)[0]


def test_tables_hold_each_model_once_per_part():
    actual = tables(summarize(Losses(runs(LOSSES))))
    assert [table.row_count for table in actual] == [2, 2, 1, 1]
    assert list(actual[0].columns[1].cells) == [
        "0.3200 [0.0659, 0.5741]",
        "0.2200 [0.0929, 0.3471]",
    ]


def test_without_the_reference_there_is_nothing_to_compare_with():
    summary = summarize(Losses(runs({"mmoe": LOSSES["mmoe"]})))
    assert "gain" not in summary
    assert finding(summary) == []
