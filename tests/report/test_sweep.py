"""The page of a sweep: well formed, with every result and every text escaped."""

from collections import Counter

import pytest

from tests.report.pages import Page, sections_without_a_sentence
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
    assert not sections_without_a_sentence(text)


def test_sections_follow_from_what_was_varied(tmp_path):
    lambdas = Page(page_of(tmp_path, lambda_trials(), "a")).headings
    experts = Page(page_of(tmp_path, expert_trials(), "b")).headings
    gates = Page(page_of(tmp_path, gate_trials(), "c")).headings
    after = ["By value", "Settings of the sweep"]
    assert lambdas == ["Best configuration", "Heat map", "All trials", *after]
    assert experts == ["Best configuration", "All trials", *after]
    assert gates == ["Best configuration", "All trials", "Settings of the sweep"]
    assert Page(page_of(tmp_path, [], "d")).headings == ["Settings of the sweep"]


def test_every_result_is_in_the_table(tmp_path):
    cells = Page(page_of(tmp_path, lambda_trials())).cells
    for row in ("0.8227 ± 0.0007", "0.8225 ± 0.0007", "0.8140 ± 0.0007"):
        assert row in cells
    assert "0.0087" in cells  # 0.8227 - 0.8140
    assert "0.0002 ~" in cells


def test_errors_and_names_are_escaped(tmp_path):
    trials = [
        trial("0", {"a<b>": "<script>alert(1)</script>"}, [0.7]),
        trial("1", {"a<b>": "x & y"}, [0.8]),
        failed("2", {"a<b>": "z"}, 'shapes <unknown> & "None"'),
    ]
    summary = summarize_sweep(write_sweep(tmp_path / "s", trials))
    page = Page(render_sweep(summary))
    # Data and the page's script; without a figure there is no Plotly.
    assert len(page.scripts) == 2
    assert 'shapes <unknown> & "None"' in page.text
    assert "<script>alert(1)</script>" in page.cells


def test_an_unfinished_sweep_shows_its_progress(tmp_path):
    path = write_sweep(tmp_path / "s", [*lambda_trials()[:3], failed("x", {"hsc_weight": 9}, "no")])
    (path / "work" / "0003").mkdir(parents=True)
    text = render_sweep(summarize_sweep(path))
    for tile in ("<b>3</b><span>trials with a result", "<b>1</b><span>trials failed"):
        assert tile in text
    assert "<b>1</b><span>trials running or interrupted" in text
    assert text.index("Failed trials") < text.index("All trials")


def test_the_page_is_written_beside_the_results(tmp_path):
    sweep = write_sweep(tmp_path / "s", [*lambda_trials(), failed("x", {"hsc_weight": 9.0}, "no")])
    page = write_sweep_report(sweep)
    assert page == sweep / "report.html"
    assert "0.8227 ± 0.0007" in Page(page.read_text(encoding="utf-8")).cells
    assert (sweep / "results.csv").is_file()
    assert f"--config {sweep}/best.yaml" in page.read_text(encoding="utf-8")


def test_a_sweep_without_results_has_a_page_but_no_best(tmp_path):
    sweep = write_sweep(tmp_path / "s", [])
    assert "No trial has a result yet." in write_sweep_report(sweep).read_text(encoding="utf-8")
    assert not (sweep / "best.yaml").exists()
