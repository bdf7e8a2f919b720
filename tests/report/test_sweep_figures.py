"""Figures of a sweep: a cell, bar or line for each trial, the best marked, robust to outliers."""

from dataclasses import replace

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
    lines, _ = spec_of(figures.parallel_coordinates(summary))
    assert [line["y"][-1] for line in lines] == pytest.approx([1, 0.5, 0.5, 0])
    assert lines[0]["line"]["color"] == "rgb(68, 1, 84)"  # the darkest of viridis for the worst


def test_numbers_over_powers_of_ten_are_placed_by_their_logarithm():
    position, ticks = figures.positions([1e-4, 1e-1, 1e-3])
    assert [position(v) for v in (1e-4, 1e-3, 1e-2, 1e-1)] == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert [text for _, text in ticks] == ["0.0001", "0.001", "0.1"]


def test_numbers_close_together_are_placed_by_their_size():
    position, _ = figures.positions([2, 4, 10])
    assert position(4) == pytest.approx(0.25)


def test_words_and_missing_values_are_spaced_evenly_in_the_order_given():
    position, ticks = figures.positions(["b", None, "a"])
    assert [(round(at, 2), text) for at, text in ticks] == [(0.0, "–"), (0.5, "b"), (1.0, "a")]
    assert position("a") == 1.0


def test_many_numbers_get_five_round_ticks():
    _, ticks = figures.positions([0.001 * 1.3**i for i in range(20)])
    assert len(ticks) == 5
    assert ticks[0][1] == "0.001"
    assert all(len(text) <= 6 for _, text in ticks[1:-1])


def test_a_single_value_is_in_the_middle():
    assert figures.positions([3])[0](3) == 0.5


def test_each_trial_is_a_line_and_the_best_is_drawn_last(tmp_path):
    drawing = figures.parallel_coordinates(summary_of(tmp_path, expert_trials()))
    lines, layout = spec_of(drawing)
    assert len(lines) == 12
    assert lines[-1]["hovertext"].startswith("trial 0011, rank 1<br>")
    assert lines[-1]["line"]["color"] == ACCENT
    assert lines[-1]["y"][-1] == 1
    assert list(layout["xaxis"]["ticktext"]) == ["N", "K", "D", "session_auc"]


def test_one_varying_name_needs_no_parallel_coordinates(tmp_path):
    assert figures.parallel_coordinates(summary_of(tmp_path, gate_trials())) is None


def test_a_mean_of_curves_is_over_the_seeds_still_training():
    one = trial("0", {}, [0.7, 0.9])
    short = replace(one.seeds[0], history=one.seeds[0].history[:2])
    one = replace(one, seeds=[short, one.seeds[1]])
    # Values rise by 0.02 an epoch to 0.7 and 0.9 in the third.
    epochs, values = figures.mean_history(one, "val_session_auc")
    assert epochs == [1, 2, 3]
    assert values == pytest.approx([0.76, 0.78, 0.90])


def test_curves_show_the_best_five_by_name_and_all_by_hint(tmp_path):
    summary = summary_of(tmp_path, lambda_trials())
    lines, _ = spec_of(figures.curves_of(summary, "val_session_auc", "session_auc"))
    assert len(lines) == 16 and all("trial " in line["hovertext"] for line in lines)
    named = [line["name"] for line in lines if line["showlegend"]]
    assert named[-1] == "1. λ₁ = 0.001, λ₂ = 0.001"
    assert [name[:2] for name in named] == ["5.", "4.", "3.", "2.", "1."]
    assert figures.curves_of(summary, "val_loss", "validation loss") is not None


def test_a_diverged_trial_does_not_flatten_the_curves_of_the_others(tmp_path):
    trials = [trial(f"{i:02d}", {"a": i}, [0.8 + i / 1000]) for i in range(30)]
    wild = trial("99", {"a": 99}, [-50.0])
    summary = summary_of(tmp_path / "wild", [*trials, wild])
    _, layout = spec_of(figures.curves_of(summary, "val_session_auc", "session_auc"))
    low, high = layout["yaxis"]["range"]
    assert 0.7 < low < 0.77 and 0.829 <= high < 0.9


def test_one_epoch_makes_no_curve(tmp_path):
    one = trial("0", {"a": 1}, [0.7])
    short = replace(one, seeds=[replace(one.seeds[0], history=one.seeds[0].history[:1])])
    summary = summary_of(tmp_path, [short])
    assert figures.curves_of(summary, "val_session_auc", "session_auc") is None
