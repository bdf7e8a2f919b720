"""Every kind of page in Chromium: no console error, key numbers present, light, dark, phone."""

import re

import pytest
from rich.console import Console

from tests.browser import DARK, LIGHT, chromium, measured, run
from tests.report.conftest import SETTINGS
from tests.tiny import TASKS, small_config, write_data_folder
from tests.tuning.sweeps import expert_trials, failed, lambda_trials, trial, write_sweep
from tfr_moe.baselines import train_any
from tfr_moe.report.build import build_report
from tfr_moe.report.html import render_report, write_page
from tfr_moe.report.sweep import write_sweep_report

pytestmark = pytest.mark.slow
__all__ = ["chromium"]  # a fixture

ATTENTIVE = {"model": "moe", "trunk": "attention", "num_epochs": 1}


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


@pytest.fixture(scope="module")
def pages(root):
    """By kind: the page, texts on it, and the least number of figures drawn at once."""
    quiet = Console(quiet=True)
    tasks = write_data_folder(root / "tasks", 48, 16, 40, schema=TASKS)
    for name, data, settings in (
        ("attentive", root / "data", {**SETTINGS, **ATTENTIVE}),
        ("lambdamart", root / "data", {"model": "lambdamart"}),
        ("mmoe", tasks, {**SETTINGS, "model": "mmoe", "num_epochs": 1}),
    ):
        train_any(data, root / name, small_config(settings), quiet)
    many = [root / name for name in ("dnn", "moe", "attentive", "lambdamart")]
    reports = {
        "comparison": build_report(root / "data", many, console=quiet),
        "single": build_report(root / "data", [root / "moe"], console=quiet),
        "tasks": build_report(tasks, [root / "mmoe"], console=quiet),
    }
    found = {}
    # The first run's box is open; figures in closed boxes are drawn when these open.
    for (name, report), figures in zip(reports.items(), (3, 7, 3), strict=True):
        write_page(render_report(report), root / f"{name}.html")
        means = [f"{s[report.metric].mean:.4f}" for s in report.evaluation.models.values()]
        found[name] = (root / f"{name}.html", means, figures)
    for name, trials, best, figures in (
        ("heat map", lambda_trials(), "0.8227", 1),
        ("three settings", expert_trials(), "0.8211", 0),
        ("wide", wide_trials(), "0.8400", 0),
    ):
        page = write_sweep_report(write_sweep(root / "sweeps" / name, trials, name))
        found[name] = (page, [best, "All trials"], figures)
    return found


KINDS = ["comparison", "single", "tasks", "heat map", "three settings", "wide"]


@pytest.mark.parametrize("name", KINDS)
def test_the_page_loads_without_console_errors_and_draws_its_figures(
    chromium, pages, tmp_path, name
):
    page, texts, figures = pages[name]
    printed, console = run(chromium, page, tmp_path, "--dump-dom", "--virtual-time-budget=5000")
    assert not console
    assert all(text in printed for text in texts)
    assert len(re.findall(r'class="plot js-plotly-plot"', printed)) >= figures
    assert 'aria-sort="' not in printed
    assert re.search(r'<button type="button">(category|rank)</button>', printed)


def test_an_error_on_the_console_would_be_seen(chromium, tmp_path):
    page = tmp_path / "bad.html"
    page.write_text("<script>throw new Error('seen')</script>")
    assert "seen" in run(chromium, page, tmp_path, "--dump-dom")[1][0]


@pytest.mark.parametrize("name", ["comparison", "heat map", "wide"])
@pytest.mark.parametrize("width", [390, 1400])
def test_nothing_is_wider_than_the_window(chromium, pages, tmp_path, name, width):
    page, _, figures = pages[name]
    found = measured(chromium, page, tmp_path, width)
    assert found["width"] == width
    assert found["page"] <= width
    assert len(found["plots"]) >= figures
    for plot in found["plots"]:
        assert plot["out"] <= 1, plot
        assert plot["smallest"] >= 9, plot  # height in pixels of the smallest text


@pytest.mark.parametrize("name", ["single", "heat map"])
@pytest.mark.parametrize(
    ("flag", "paper"), [(LIGHT, "rgb(255, 255, 255)"), (DARK, "rgb(20, 23, 27)")]
)
def test_text_has_contrast_in_light_and_dark(chromium, pages, tmp_path, name, flag, paper):
    found = measured(chromium, pages[name][0], tmp_path, 1000, flag)
    assert found["paper"] == paper
    assert set(found["contrast"]) == {"h1", "p", "th", "td", ".lead", "pre", "axis"}
    assert all(ratio >= 4.5 for ratio in found["contrast"].values()), found["contrast"]


def test_tables_sort_by_a_click_and_categories_are_searched(chromium, pages, tmp_path):
    script = """<script>
    const table = document.getElementById("categories-sub");
    const button = table.querySelectorAll("th button");
    const column = i => [...table.tBodies[0].rows].map(row => row.cells[i].textContent);
    button[0].click(); const names = column(0);
    button[1].click(); const falling = column(1).map(Number);
    const field = document.querySelector("input[data-table=categories-sub]");
    field.value = " A > X"; field.dispatchEvent(new Event("input"));
    const left = [...table.tBodies[0].rows].filter(row => !row.hidden)
      .map(row => row.cells[0].textContent);
    const message = document.getElementById("categories-sub-count").textContent;
    document.title = JSON.stringify({names, falling, left, message});
    </script></body>"""
    page = tmp_path / "sorted.html"
    text = pages["comparison"][0].read_text(encoding="utf-8")
    page.write_text(text.replace("</body>", script), encoding="utf-8")
    printed, console = run(chromium, page, tmp_path, "--dump-dom", "--virtual-time-budget=5000")
    assert not console
    found = re.search("<title>(.*?)</title>", printed)[1].replace("&gt;", ">")
    assert '"names":["a > x","a > y","b > x","b > z"]' in found
    falling = re.search(r'"falling":\[(.*?)\]', found)[1].split(",")
    assert [int(n) for n in falling] == sorted((int(n) for n in falling), reverse=True)
    assert '"left":["a > x"],"message":"1 of 4"' in found
