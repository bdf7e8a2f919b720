"""The page of a sweep: well formed, complete and escaped; its heat map."""

from collections import Counter

import pytest

from tests.report.pages import Page, findings_of
from tests.tuning.sweeps import (
    expert_trials,
    failed,
    gate_trials,
    lambda_trials,
    trial,
    write_sweep,
)
from tfr_moe.report import sweep
from tfr_moe.report.figures import Cell
from tfr_moe.report.sweep import render_sweep, write_sweep_report
from tfr_moe.tuning.results import summarize_sweep


def page_of(tmp_path, trials, name="sweep", **given):
    return render_sweep(summarize_sweep(write_sweep(tmp_path / name, trials)), **given)


@pytest.mark.parametrize("trials", [lambda_trials(), expert_trials(), gate_trials(), []])
def test_the_page_is_well_formed_and_needs_no_network(tmp_path, trials):
    text = page_of(tmp_path, trials)
    page = Page(text)
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert not [i for i, count in Counter(page.ids).items() if count > 1]
    assert '<meta name="viewport"' in text
    assert all(findings_of(text).values())


def test_sections_follow_from_what_was_varied(tmp_path):
    lambdas = Page(page_of(tmp_path, lambda_trials(), "a")).headings
    experts = Page(page_of(tmp_path, expert_trials(), "b")).headings
    gates = Page(page_of(tmp_path, gate_trials(), "c")).headings
    first, after = (
        ["Best settings", "What it cost", "What next"],
        ["Words"],
    )
    assert lambdas == [*first, "Heat map", "All trials", *after]
    assert experts == [*first, "All trials", *after]
    assert gates == [*first, "All trials", *after]
    assert Page(page_of(tmp_path, [], "d")).headings == ["What it cost", *after]


def test_the_verdict_names_the_best_and_what_is_level(tmp_path):
    lambdas = Page(page_of(tmp_path, lambda_trials(), "a")).text
    assert "λ₁ = 0.001, λ₂ = 0.001 leads, level with 7 of the others" in lambdas
    assert "Trial 0010 has a session_auc of 0.8227 ± 0.0007, 0.0002 from the second." in lambdas
    assert "Results differ by 0.0087 at most" in lambdas
    assert (
        "gate_features = sub leads, by one seed a trial"
        in Page(page_of(tmp_path, gate_trials(), "b")).text
    )
    two = [trial("0", {"top_k": 1}, [0.7, 0.701]), trial("1", {"top_k": 2}, [0.8, 0.801])]
    assert "K = 2 wins" in Page(page_of(tmp_path, two, "c")).text
    assert "No result yet" in Page(page_of(tmp_path, [], "d")).text


def test_every_result_is_in_the_table(tmp_path):
    cells = Page(page_of(tmp_path, lambda_trials())).cells
    for row in ("0.8227 ± 0.0007", "0.8225 ± 0.0007", "0.8140 ± 0.0007"):
        assert row in cells
    assert "0.0087" in cells  # 0.8227 - 0.8140
    assert "≈ 0.0002" in cells


def test_errors_and_names_are_escaped(tmp_path):
    trials = [
        trial("0", {"a<b>": "<script>alert(1)</script>"}, [0.7]),
        trial("1", {"a<b>": "x & y"}, [0.8]),
        failed("2", {"a<b>": "z"}, 'shapes <unknown> & "None"'),
    ]
    summary = summarize_sweep(write_sweep(tmp_path / "s", trials))
    page = Page(render_sweep(summary))
    assert len(page.scripts) == 1
    assert 'shapes <unknown> & "None"' in page.text
    assert "<script>alert(1)</script>" in page.cells


def test_an_unfinished_sweep_shows_its_progress(tmp_path):
    path = write_sweep(tmp_path / "s", [*lambda_trials()[:3], failed("x", {"hsc_weight": 9}, "no")])
    (path / "work" / "0003").mkdir(parents=True)
    text = render_sweep(summarize_sweep(path))
    assert "3 trials with a result, 1 failed, 1 running or interrupted." in Page(text).text
    assert text.index("Failed trials") < text.index("All trials")


def test_the_page_is_written_beside_the_results(tmp_path):
    path = write_sweep(tmp_path / "s", [*lambda_trials(), failed("x", {"hsc_weight": 9.0}, "no")])
    page = write_sweep_report(path, tmp_path / "svg")
    assert page == path / "report.html"
    [drawn] = (tmp_path / "svg").iterdir()
    assert "0.8227 ± 0.0007" in drawn.read_text(encoding="utf-8")
    assert "0.8227 ± 0.0007" in Page(page.read_text(encoding="utf-8")).cells
    assert (path / "results.csv").is_file()
    assert f"--config {path}/best.yaml" in Page(page.read_text(encoding="utf-8")).text


def test_a_sweep_without_results_has_a_page_but_no_best(tmp_path):
    path = write_sweep(tmp_path / "s", [])
    assert "No trial has a result yet." in write_sweep_report(path).read_text(encoding="utf-8")
    assert not (path / "best.yaml").exists()


def summary_of(tmp_path, trials):
    return summarize_sweep(write_sweep(tmp_path / "s", trials))


def test_the_heat_map_of_table_viii_has_the_paper_s_layout_and_numbers(tmp_path):
    drawn = sweep.heat_map_of(summary_of(tmp_path, lambda_trials()))
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
    drawn = sweep.heat_map_of(summary_of(tmp_path, lambda_trials()))
    best = [(y, x) for y, row in enumerate(drawn.cells) for x, c in enumerate(row) if c.kind]
    assert best == [(2, 2)]
    assert drawn.cells[2][2].share == 1 > max(c.share for c in drawn.cells[0])
    # Level with the best: the gap is below the least significant difference, 0.0015.
    assert drawn.cells[3][2].text == "≈ 0.8225 ± 0.0007"


def test_a_cell_that_was_not_run_stays_empty(tmp_path):
    trials = [t for t in lambda_trials() if t.trial_id != "0005"]
    drawn = sweep.heat_map_of(summary_of(tmp_path, trials))
    assert drawn.cells[1][1] == Cell("–", hint="not run")


def test_a_cell_shows_the_best_over_what_else_varies(tmp_path):
    trials = [
        trial(f"{a}{b}{c}", {"hsc_weight": a, "adversarial_weight": b, "learning_rate": c}, [v])
        for a, b, c, v in [
            (0.1, 0.1, 1e-3, 0.70), (0.1, 0.1, 1e-2, 0.75), (0.01, 0.1, 1e-3, 0.72),
            (0.1, 0.01, 1e-3, 0.71), (0.01, 0.01, 1e-3, 0.73),
        ]
    ]  # fmt: skip
    drawn = sweep.heat_map_of(summary_of(tmp_path, trials))
    assert drawn.cells[0][0].text == "0.7500"
    assert "learning_rate = 0.01" in drawn.cells[0][0].hint


def test_other_spaces_have_no_heat_map(tmp_path):
    for name, trials in {"experts": expert_trials(), "gate": gate_trials()}.items():
        assert sweep.heat_map_of(summary_of(tmp_path / name, trials)) is None


def test_any_two_numbers_of_few_values_make_a_heat_map(tmp_path):
    trials = [
        trial(f"{k}{d}", {"top_k": k, "dropout": d}, [0.7 + k / 100 + d])
        for k in (1, 2)
        for d in (0.0, 0.1)
    ]
    axes = sweep.grid_axes(summary_of(tmp_path, trials))
    assert list(axes.items()) == [("top_k", [2, 1]), ("dropout", [0.1, 0.0])]


def test_a_small_loss_has_the_strongest_colour(tmp_path):
    trials = [
        trial(f"{k}{d}", {"top_k": k, "dropout": d}, [k / 10 + d], "loss")
        for k in (3, 4)
        for d in (0.0, 0.1)
    ]
    path = write_sweep(tmp_path / "s", trials, metric="loss")
    drawn = sweep.heat_map_of(summarize_sweep(path))
    # 0.3 is the best, 0.5 the worst: rows are dropout 0.1 and 0, columns K = 4 and 3.
    shares = [[cell.share for cell in row] for row in drawn.cells]
    assert shares[1][1] == 1.0 and shares[0][0] == 0.25
    assert sorted([shares[0][1], shares[1][0]]) == [0.5, 0.75]


def test_numbers_are_sorted_by_size_and_other_values_have_no_heat_map(tmp_path):
    trials = [
        trial("0", {"a": 10, "b": 1, "c": "SC"}, [0.7]),
        trial("1", {"a": 9, "b": 2, "c": "TC+SC"}, [0.9]),
        trial("2", {"a": 100, "b": 2, "c": "all"}, [0.8]),
    ]
    numbers = [trial(t.trial_id, {n: t.hyperparameters[n] for n in "ab"}, [0.7]) for t in trials]
    words = [trial(t.trial_id, {n: t.hyperparameters[n] for n in "ac"}, [0.7]) for t in trials]
    axes = sweep.grid_axes(summary_of(tmp_path / "numbers", numbers))
    assert axes == {"a": [100, 10, 9], "b": [2, 1]}
    assert sweep.grid_axes(summary_of(tmp_path / "words", words)) == {}
