"""The heat map of a sweep: a cell for each pair, the best framed, robust to outliers."""

import pytest

from tests.tuning.sweeps import expert_trials, gate_trials, lambda_trials, trial, write_sweep
from tfr_moe.report import sweep_figures as figures
from tfr_moe.tuning.results import summarize_sweep


def summary_of(tmp_path, trials):
    return summarize_sweep(write_sweep(tmp_path / "s", trials))


def test_the_heat_map_of_table_viii_has_the_paper_s_layout_and_numbers(tmp_path):
    drawn = figures.heat_map_of(summary_of(tmp_path, lambda_trials()))
    assert [name for name, _ in drawn.columns] == ["0.1", "0.01", "0.001", "0.0001"]
    assert list(drawn.rows) == ["0.1", "0.01", "0.001", "0.0001"]
    assert drawn.corner == "adversarial_weight (λ₂) ↓ hsc_weight (λ₁) →"
    # Row 0 is lambda_2 = 0.1, column 0 lambda_1 = 0.1, as in the paper.
    assert [cell.text for cell in drawn.cells[0]] == [
        "0.8167 ± 0.0007", "0.8140 ± 0.0007", "0.8167 ± 0.0007", "0.8177 ± 0.0007"
    ]  # fmt: skip
    hint = "trial 0001, rank 16, 0.8140 ± 0.0007, λ₁ = 0.01, λ₂ = 0.1"
    assert drawn.cells[0][1].hint == hint
    assert [len(row) for row in drawn.cells] == [4, 4, 4, 4]


def test_only_the_best_cell_is_framed_and_it_has_the_strongest_colour(tmp_path):
    drawn = figures.heat_map_of(summary_of(tmp_path, lambda_trials()))
    best = [(y, x) for y, row in enumerate(drawn.cells) for x, c in enumerate(row) if c.kind]
    assert best == [(2, 2)]
    assert drawn.cells[2][2].share == 1 > max(c.share for c in drawn.cells[0])
    # Level with the best: the gap is below the least significant difference, 0.0015.
    assert drawn.cells[3][2].text == "≈ 0.8225 ± 0.0007"


def test_a_cell_that_was_not_run_stays_empty(tmp_path):
    trials = [t for t in lambda_trials() if t.trial_id != "0005"]
    drawn = figures.heat_map_of(summary_of(tmp_path, trials))
    assert drawn.cells[1][1] == figures.Cell("–", hint="not run")


def test_a_cell_shows_the_best_over_what_else_varies(tmp_path):
    trials = [
        trial(f"{a}{b}{c}", {"hsc_weight": a, "adversarial_weight": b, "learning_rate": c}, [v])
        for a, b, c, v in [
            (0.1, 0.1, 1e-3, 0.70), (0.1, 0.1, 1e-2, 0.75), (0.01, 0.1, 1e-3, 0.72),
            (0.1, 0.01, 1e-3, 0.71), (0.01, 0.01, 1e-3, 0.73),
        ]
    ]  # fmt: skip
    drawn = figures.heat_map_of(summary_of(tmp_path, trials))
    assert drawn.cells[0][0].text == "0.7500"
    assert "learning_rate = 0.01" in drawn.cells[0][0].hint


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


def test_differences_within_seed_noise_stay_pale():
    # The least significant difference is 0.03, so the scale spans 0.06 and not 0.02.
    assert figures.scale([0.86, 0.87, 0.88], True, 0.03) == pytest.approx((0.82, 0.88))
    assert figures.scale([0.4, 0.3], False, 0.1) == pytest.approx((0.5, 0.3))


def test_a_small_loss_has_the_strongest_colour(tmp_path):
    trials = [
        trial(f"{k}{d}", {"top_k": k, "dropout": d}, [k / 10 + d], "loss", "min")
        for k in (3, 4)
        for d in (0.0, 0.1)
    ]
    path = write_sweep(tmp_path / "s", trials, metric="loss", direction="min")
    drawn = figures.heat_map_of(summarize_sweep(path))
    # 0.3 is the best, 0.5 the worst: rows are dropout 0.1 and 0, columns K = 4 and 3.
    shares = [[cell.share for cell in row] for row in drawn.cells]
    assert shares == [pytest.approx([0.0, 0.5]), pytest.approx([0.5, 1.0])]
