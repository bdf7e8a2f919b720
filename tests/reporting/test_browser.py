"""Reports of all kinds of runs in a real browser: no word on the console, nothing cut off, light and dark."""

import re

import pytest
from rich.console import Console

from tests.browser import DARK, LIGHT, chromium, measured, run
from tests.reporting.conftest import SETTINGS
from tests.tiny import TASKS, write_data_folder
from tfr_moe.baselines import train_any
from tfr_moe.config import make_config
from tfr_moe.reporting.gather import gather
from tfr_moe.reporting.page import write

pytestmark = pytest.mark.slow
__all__ = ["chromium"]  # a fixture

ATTENTIVE = {"model": "moe", "trunk": "attention", "num_epochs": 1}


@pytest.fixture(scope="module")
def pages(root):
    """Three reports: of many runs, of a single one, of one with several tasks."""
    quiet = Console(quiet=True)
    tasks = write_data_folder(root / "tasks", 48, 16, 40, schema=TASKS)
    for name, data, settings in (
        ("attentive", root / "data", {**SETTINGS, **ATTENTIVE}),
        ("lambdamart", root / "data", {"model": "lambdamart"}),
        ("mmoe", tasks, {**SETTINGS, "model": "mmoe", "num_epochs": 1}),
    ):
        train_any(data, root / name, make_config(settings), quiet)
    many = [root / name for name in ("dnn", "moe", "attentive", "lambdamart")]
    reports = {
        "many": gather(root / "data", many, console=quiet),
        "single": gather(root / "data", [root / "moe"], console=quiet),
        "tasks": gather(tasks, [root / "mmoe"], console=quiet),
    }
    for name, report in reports.items():
        write(report, root / f"{name}.html")
    return {name: (root / f"{name}.html", report) for name, report in reports.items()}


@pytest.mark.parametrize("name", ["many", "single", "tasks"])
def test_the_page_loads_without_a_word_on_the_console_and_draws_its_figures(
    chromium, pages, tmp_path, name
):
    page, report = pages[name]
    printed, console = run(chromium, page, tmp_path, "--dump-dom", "--virtual-time-budget=5000")
    assert not console
    for summaries in report.evaluation.models.values():
        assert f"{summaries[report.metric].mean:.4f}" in printed
    # The box of a single run is open; figures in boxes that are closed are drawn when these open.
    drawn = len(re.findall(r'class="plot js-plotly-plot"', printed))
    assert drawn >= {"many": 6, "single": 10, "tasks": 3}[name]
    assert 'aria-sort="' not in printed
    assert '<button type="button">category</button>' in printed


@pytest.mark.parametrize("width", [400, 1000])
def test_nothing_is_wider_than_the_window(chromium, pages, tmp_path, width):
    found = measured(chromium, pages["many"][0], tmp_path, width)
    assert found["width"] == width
    assert found["page"] <= width


@pytest.mark.parametrize(
    ("flag", "paper"), [(LIGHT, "rgb(255, 255, 255)"), (DARK, "rgb(20, 23, 27)")]
)
def test_text_stands_out_in_light_and_dark(chromium, pages, tmp_path, flag, paper):
    found = measured(chromium, pages["single"][0], tmp_path, 1000, flag)
    assert found["paper"] == paper
    assert all(ratio >= 4.5 for ratio in found["contrast"].values()), found["contrast"]


def test_a_picture_of_the_page_is_not_empty_and_it_prints(chromium, pages, tmp_path):
    picture, sheets = tmp_path / "page.png", tmp_path / "page.pdf"
    page = pages["single"][0]
    flags = ["--virtual-time-budget=5000", "--window-size=1000,3000"]
    _, console = run(chromium, page, tmp_path, f"--screenshot={picture}", *flags)
    assert not console
    assert picture.stat().st_size > 50_000
    _, console = run(chromium, page, tmp_path, f"--print-to-pdf={sheets}", *flags, DARK)
    assert not console
    assert sheets.read_bytes().count(b"/Type /Page\n") >= 2
