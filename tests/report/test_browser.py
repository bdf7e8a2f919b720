"""Every kind of page in Chromium: no console error, light, dark, phone, paper, accessibility."""

import re

import pytest

from tests.browser import (
    DARK,
    LIGHT,
    checked,
    chromium,
    measured,
    measured_in_frames,
    run,
    violations,
)
from tests.report.cases import CASES, drift
from tests.tuning.sweeps import expert_trials, failed, lambda_trials, trial, write_sweep
from tfr_moe.report.build import render_report
from tfr_moe.report.drift import render_drift
from tfr_moe.report.html import write_page
from tfr_moe.report.sweep import write_sweep_report

pytestmark = pytest.mark.slow
__all__ = ["chromium"]  # a fixture


def wide_trials():
    """A random search over many names, one trial diverged and one failed."""
    trials = []
    for i in range(40):
        names = {
            "learning_rate": 1e-4 * 1.1**i,
            "expert_hidden_dims": [[16, 8], [64, 32], [1024, 512, 256]][i % 3],
            "dropout": (i % 4) / 10,
            "embedding_dim": 4 * (1 + i % 5),
            "batch_size": 16 + i,
        }
        value = 0.3 if i == 7 else 0.8 + 0.001 * i
        trials.append(trial(f"{i:04d}", names, [value, value + 0.002]))
    return [*trials, failed("0040", {"learning_rate": 9.0}, "the loss was not a number in epoch 1")]


SWEEPS = {"heat map": lambda_trials, "three settings": expert_trials, "wide": wide_trials}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The pages of all cases and sweeps, by name."""
    folder = tmp_path_factory.mktemp("pages")
    for name, case in CASES.items():
        write_page(render_report(case()), folder / f"{name}.html")
    write_page(render_drift(drift(), "data/monday", "data/tuesday"), folder / "drift.html")
    result = {name: folder / f"{name}.html" for name in [*CASES, "drift"]}
    for name, trials in SWEEPS.items():
        result[name] = write_sweep_report(write_sweep(folder / "sweeps" / name, trials(), name))
    return result


MODES = {
    "wins": DARK,
    "nothing_differs": LIGHT,
    "single": DARK,
    "three settings": DARK,
    "collapsed": LIGHT,
    "tasks": LIGHT,
    "heat map": DARK,
    "wide": LIGHT,
    "drift": DARK,
}


@pytest.fixture(scope="module")
def loaded(chromium, pages, tmp_path_factory):
    """What axe finds on each page, and its document; each is loaded once, light or dark."""
    assert MODES.keys() == pages.keys()
    folder = tmp_path_factory.mktemp("loaded")
    return {name: checked(chromium, pages[name], folder, mode) for name, mode in MODES.items()}


@pytest.mark.parametrize("name", MODES)
def test_the_page_loads_without_console_errors_and_draws_its_charts(loaded, name):
    _, printed = loaded[name]
    assert 'class="heat"' in printed or name in ("three settings", "wide")
    assert 'aria-sort="' not in printed
    sortable = re.search(r'<button type="button">(category|rank)</button>', printed)
    assert sortable or name == "drift"


def test_an_error_on_the_console_would_be_seen(chromium, tmp_path):
    page = tmp_path / "bad.html"
    page.write_text("<script>throw new Error('seen')</script>")
    assert "seen" in run(chromium, page, tmp_path, "--dump-dom")[1][0]


WIDTHS = [(name, w) for name in ("wins", "tasks", "heat map", "wide", "drift") for w in (390, 1400)]


@pytest.fixture(scope="module")
def sizes(chromium, pages, tmp_path_factory):
    """What is measured of each name and width of `WIDTHS`."""
    framed = [(pages[name], width) for name, width in WIDTHS]
    result = measured_in_frames(chromium, framed, tmp_path_factory.mktemp("sizes"))
    return dict(zip(WIDTHS, result, strict=True))


@pytest.mark.parametrize(("name", "width"), WIDTHS)
def test_nothing_is_wider_than_the_window_and_tables_show_that_they_scroll(sizes, name, width):
    actual = sizes[name, width]
    assert actual["width"] == width
    assert actual["page"] <= width
    assert actual["hidden"] == []


@pytest.mark.parametrize("name", MODES)
def test_axe_finds_nothing_in_light_and_dark(loaded, name):
    assert loaded[name][0] == []


@pytest.mark.parametrize(
    ("flag", "paper"), [(LIGHT, "rgb(255, 255, 255)"), (DARK, "rgb(20, 23, 27)")]
)
def test_the_page_follows_the_theme(chromium, pages, tmp_path, flag, paper):
    assert measured(chromium, pages["heat map"], tmp_path, 1000, flag)["paper"] == paper


def test_axe_would_find_what_is_wrong(chromium, tmp_path):
    page = tmp_path / "bad.html"
    page.write_text("<html><body><h1>x</h1><img src='data:,'></body></html>")
    assert "image-alt" in [rule for rule, _ in violations(chromium, page, tmp_path)]


def test_tables_sort_by_a_click_and_categories_are_searched(chromium, pages, tmp_path):
    script = """<script>
    const table = document.getElementById("categories-sub");
    const button = table.querySelectorAll("th button");
    const column = i => [...table.tBodies[0].rows].map(row => row.cells[i].textContent);
    button[0].click(); const names = column(0);
    button[2].click(); const falling = column(2).map(text => parseFloat(text.slice(2)));
    const field = document.querySelector("input[data-table=categories-sub]");
    field.value = " Shoes > A"; field.dispatchEvent(new Event("input"));
    const left = [...table.tBodies[0].rows].filter(row => !row.hidden)
      .map(row => row.cells[0].textContent);
    const message = document.getElementById("categories-sub-count").textContent;
    document.title = JSON.stringify({names, falling, left, message});
    </script></body>"""
    page = tmp_path / "sorted.html"
    text = pages["wins"].read_text(encoding="utf-8")
    page.write_text(text.replace("</body>", script), encoding="utf-8")
    printed, console = run(chromium, page, tmp_path, "--dump-dom", "--virtual-time-budget=2000")
    assert not console
    actual = re.search("<title>(.*?)</title>", printed)[1].replace("&gt;", ">")
    assert '"names":["books > A","books > B","food > A",' in actual
    falling = [float(n) for n in re.search(r'"falling":\[(.*?)\]', actual)[1].split(",")]
    assert falling == sorted(falling, reverse=True) and falling[0] > 0 > falling[-1]
    assert '"left":["shoes > A"],"message":"1 of 12"' in actual
