"""The page in a real browser: nothing on the console, nothing cut off, and readable in light and dark."""

import pytest

from tests.browser import DARK, LIGHT, chromium, measured, run
from tests.tuning.sweeps import (
    expert_trials,
    failed,
    gate_trials,
    lambda_trials,
    trial,
    write_sweep,
)
from tfr_moe.tuning.report import write_report

pytestmark = pytest.mark.slow
__all__ = ["chromium"]  # a fixture


def wide_trials():
    """A random search over many names, one of them diverged and one failed."""
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


SWEEPS = {
    "lambda_grid": lambda_trials,
    "experts": expert_trials,
    "gate_input": gate_trials,
    "wide": wide_trials,
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    return {
        name: write_report(write_sweep(folder / name, make(), name))
        for name, make in SWEEPS.items()
    }


@pytest.mark.parametrize("name", SWEEPS)
def test_the_page_loads_without_a_word_on_the_console_and_shows_its_numbers(
    chromium, pages, tmp_path, name
):
    printed, console = run(chromium, pages[name], tmp_path, "--dump-dom")
    assert not console
    best = {"lambda_grid": "0.8227", "experts": "0.8211", "gate_input": "0.8212", "wide": "0.8400"}
    assert best[name] in printed
    assert "All trials" in printed


def test_an_error_on_the_console_would_be_seen(chromium, tmp_path):
    page = tmp_path / "bad.html"
    page.write_text("<script>throw new Error('seen')</script>")
    assert "seen" in run(chromium, page, tmp_path, "--dump-dom")[1][0]


@pytest.mark.parametrize("name", SWEEPS)
@pytest.mark.parametrize("width", [400, 1000])
def test_nothing_is_wider_than_the_window_and_no_text_is_cut(
    chromium, pages, tmp_path, name, width
):
    found = measured(chromium, pages[name], tmp_path, width)
    assert found["width"] == width
    assert found["page"] <= width
    assert len(found["svgs"]) >= 3
    for svg in found["svgs"]:
        assert svg["out"] <= 1, svg
        assert svg["smallest"] >= 9, svg  # pixels of a line of the smallest text


@pytest.mark.parametrize(
    ("flag", "paper"), [(LIGHT, "rgb(255, 255, 255)"), (DARK, "rgb(20, 23, 27)")]
)
def test_text_stands_out_in_light_and_dark(chromium, pages, tmp_path, flag, paper):
    found = measured(chromium, pages["lambda_grid"], tmp_path, 1000, flag)
    assert found["paper"] == paper
    assert set(found["contrast"]) == {"h1", "p", "th", "td", ".lead", "pre", "axis"}
    assert all(ratio >= 4.5 for ratio in found["contrast"].values()), found["contrast"]


def test_the_page_prints_on_a_few_sheets(chromium, pages, tmp_path):
    sheets = tmp_path / "page.pdf"
    _, console = run(chromium, pages["lambda_grid"], tmp_path, f"--print-to-pdf={sheets}", DARK)
    assert not console
    assert 1 <= sheets.read_bytes().count(b"/Type /Page\n") <= 6
