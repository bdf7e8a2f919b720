"""The page of a sweep: well formed, with every result and every text escaped."""

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
        ["Settings of the sweep", "Words"],
    )
    assert lambdas == [*first, "Heat map", "By value", "All trials", *after]
    assert experts == [*first, "By value", "All trials", *after]
    assert gates == [*first, "All trials", *after]
    assert Page(page_of(tmp_path, [], "d")).headings == ["What it cost", *after]


def test_the_verdict_names_the_best_and_what_is_level(tmp_path):
    lambdas = Page(page_of(tmp_path, lambda_trials(), "a")).text
    assert "λ₁ = 0.001, λ₂ = 0.001 leads, 7 others are level" in lambdas
    assert "Trial 0010 has a session_auc of 0.8227 ± 0.0007, 0.0002 from the second." in lambdas
    assert "adversarial_weight (λ₂) matters most: its means span 0.0047" in lambdas
    assert "Results differ by 0.0087 at most" in lambdas
    assert (
        "gate_input = SC leads, by one seed a trial"
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
    sweep = write_sweep(tmp_path / "s", [*lambda_trials(), failed("x", {"hsc_weight": 9.0}, "no")])
    page = write_sweep_report(sweep, {"svg": tmp_path / "svg"})
    assert page == sweep / "report.html"
    [drawn] = (tmp_path / "svg").iterdir()
    assert "0.8227 ± 0.0007" in drawn.read_text(encoding="utf-8")
    assert "0.8227 ± 0.0007" in Page(page.read_text(encoding="utf-8")).cells
    assert (sweep / "results.csv").is_file()
    assert f"--config {sweep}/best.yaml" in Page(page.read_text(encoding="utf-8")).text


def test_a_sweep_without_results_has_a_page_but_no_best(tmp_path):
    sweep = write_sweep(tmp_path / "s", [])
    assert "No trial has a result yet." in write_sweep_report(sweep).read_text(encoding="utf-8")
    assert not (sweep / "best.yaml").exists()
