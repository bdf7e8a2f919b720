"""The heat map of a sweep: a cell for each pair, the best framed, robust to outliers."""

import pytest

from tests.tuning.sweeps import expert_trials, gate_trials, lambda_trials, trial, write_sweep
from tfr_moe.report import sweep_figures as figures
from tfr_moe.tuning.results import summarize_sweep

ACCENT = "var(--accent)"


def summary_of(tmp_path, trials):
    return summarize_sweep(write_sweep(tmp_path / "s", trials))


def spec_of(drawing):
    """Traces and layout as plain data."""
    spec = drawing.figure.to_plotly_json()
    return spec["data"], spec["layout"]


def test_the_heat_map_of_table_viii_has_the_paper_s_layout_and_numbers(tmp_path):
    (heat,), layout = spec_of(figures.heat_map_of(summary_of(tmp_path, lambda_trials())))
    assert list(layout["xaxis"]["ticktext"]) == ["0.1", "0.01", "0.001", "0.0001"]
    assert list(layout["yaxis"]["ticktext"]) == ["0.1", "0.01", "0.001", "0.0001"]
    assert layout["yaxis"]["autorange"] == "reversed"
    # Row 0 is lambda_2 = 0.1, column 0 lambda_1 = 0.1, as in the paper.
    assert list(heat["z"][0]) == pytest.approx([0.8167, 0.8140, 0.8167, 0.8177])
    assert heat["hovertext"][0][1].startswith("trial 0001, rank 16<br>0.8140 ± 0.0007")
    assert "λ₁ = 0.01<br>λ₂ = 0.1" in heat["hovertext"][0][1]
    assert heat["text"][0][0] == "0.8167<br>± 0.0007"
    assert [len(row) for row in heat["z"]] == [4, 4, 4, 4]


def test_only_the_best_cell_is_framed_and_it_is_the_brightest(tmp_path):
    (heat,), layout = spec_of(figures.heat_map_of(summary_of(tmp_path, lambda_trials())))
    (frame,) = layout["shapes"]
    assert frame["line"]["color"] == ACCENT
    assert (frame["x0"], frame["x1"], frame["y0"], frame["y1"]) == (1.5, 2.5, 1.5, 2.5)
    assert heat["zmax"] == heat["z"][2][2] and not heat["reversescale"]
    assert heat["text"][2][2].startswith("<b>0.8227</b>")


def test_a_cell_that_was_not_run_stays_empty(tmp_path):
    trials = [t for t in lambda_trials() if t.trial_id != "0005"]
    (heat,), layout = spec_of(figures.heat_map_of(summary_of(tmp_path, trials)))
    assert heat["z"][1][1] is None
    assert heat["hovertext"][1][1] == "not run"
    assert [(a["x"], a["y"], a["text"]) for a in layout["annotations"]] == [(1, 1, "–")]


def test_a_cell_shows_the_best_over_what_else_varies(tmp_path):
    trials = [
        trial(f"{a}{b}{c}", {"hsc_weight": a, "adversarial_weight": b, "learning_rate": c}, [v])
        for a, b, c, v in [
            (0.1, 0.1, 1e-3, 0.70), (0.1, 0.1, 1e-2, 0.75), (0.01, 0.1, 1e-3, 0.72),
            (0.1, 0.01, 1e-3, 0.71), (0.01, 0.01, 1e-3, 0.73),
        ]
    ]  # fmt: skip
    (heat,), _ = spec_of(figures.heat_map_of(summary_of(tmp_path, trials)))
    assert heat["z"][0][0] == 0.75
    assert "learning_rate = 0.01" in heat["hovertext"][0][0]


def test_other_spaces_have_no_heat_map(tmp_path):
    for name, trials in {"experts": expert_trials(), "gate": gate_trials()}.items():
        assert figures.heat_map_of(summary_of(tmp_path / name, trials)) is None


def test_any_two_numbers_of_few_values_make_a_heat_map(tmp_path):
    trials = [
        trial(f"{k}{d}", {"top_k": k, "dropout": d}, [0.7 + k / 100 + d])
        for k in (1, 2)
        for d in (0.0, 0.1)
    ]
    assert figures.grid_axes(summary_of(tmp_path, trials)) == ("top_k", "dropout")


def test_one_diverged_trial_does_not_use_up_the_colours():
    # The best is 0.88, the median 0.865, four times their distance below the best is 0.82.
    assert figures.scale([0.1, 0.86, 0.87, 0.88], higher=True) == pytest.approx((0.82, 0.88))


def test_a_small_loss_is_bright(tmp_path):
    trials = [
        trial(f"{k}{d}", {"top_k": k, "dropout": d}, [k / 10 + d], "loss", "min")
        for k in (3, 4)
        for d in (0.0, 0.1)
    ]
    path = write_sweep(tmp_path / "s", trials, metric="loss", direction="min")
    summary = summarize_sweep(path)
    (heat,), _ = spec_of(figures.heat_map_of(summary))
    assert heat["reversescale"]
    assert (heat["zmin"], heat["zmax"]) == pytest.approx((0.3, 0.5))
