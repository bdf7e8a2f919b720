"""The heat map and the bars: a cell or bar for each setting, the best marked, nothing invented."""

import re
from xml.etree import ElementTree

import matplotlib
import pytest

from tests.tuning.sweeps import expert_trials, gate_trials, lambda_trials, trial, write_sweep
from tfr_moe.tuning import figures, svg
from tfr_moe.tuning.summary import summarize_sweep

SVG = "{http://www.w3.org/2000/svg}"


def summary_of(tmp_path, trials):
    return summarize_sweep(write_sweep(tmp_path / "s", trials))


def texts(drawing):
    return ["".join(t.itertext()) for t in ElementTree.fromstring(drawing).iter(f"{SVG}text")]


def groups(drawing, prefix):
    """id -> (title, style of its path) of the groups whose ids begin so."""
    found = {}
    for group in ElementTree.fromstring(drawing).iter(f"{SVG}g"):
        if group.get("id", "").startswith(prefix):
            title, path = group.find(f"{SVG}title"), group.find(f"{SVG}path")
            found[group.get("id")] = (None if title is None else title.text, path.get("style"))
    return found


def test_the_heat_map_of_table_viii_has_the_paper_s_layout_and_numbers(tmp_path):
    drawing = figures.heat_map(summary_of(tmp_path, lambda_trials()))
    cells = groups(drawing, "heat-cell-")
    assert len(cells) == 16
    # Row 0 is lambda_2 = 0.1, column 0 lambda_1 = 0.1, as in the paper.
    assert cells["heat-cell-0-1"][0].startswith("trial 0001, number 16: 0.8140 ± 0.0007")
    assert "λ₁ = 0.01, λ₂ = 0.1" in cells["heat-cell-0-1"][0]
    numbers = [text for text in texts(drawing) if re.fullmatch(r"0\.8\d{3}", text)]
    assert numbers[:4] == ["0.8167", "0.8140", "0.8167", "0.8177"]
    assert len(numbers) == 16
    assert texts(drawing).count("± 0.0007") == 16


def test_only_the_best_cell_is_framed_and_it_is_the_brightest(tmp_path):
    cells = groups(figures.heat_map(summary_of(tmp_path, lambda_trials())), "heat-cell-")
    framed = [name for name, (_, style) in cells.items() if "var(--accent)" in style]
    assert framed == ["heat-cell-2-2"]
    assert "#fde725" in cells["heat-cell-2-2"][1]  # the end of viridis


def test_a_cell_that_was_not_run_stays_empty(tmp_path):
    trials = [t for t in lambda_trials() if t.trial_id != "0005"]
    drawing = figures.heat_map(summary_of(tmp_path, trials))
    title, style = groups(drawing, "heat-cell-1-1")["heat-cell-1-1"]
    assert title is None
    assert "fill: none" in style
    assert texts(drawing).count("–") == 1


def test_a_cell_shows_the_best_over_what_else_varies(tmp_path):
    trials = [
        trial(f"{a}{b}{rate}", {"hsc_weight": a, "adversarial_weight": b, "learning_rate": rate}, [v])
        for a, b, rate, v in [
            (0.1, 0.1, 1e-3, 0.70), (0.1, 0.1, 1e-2, 0.75), (0.01, 0.1, 1e-3, 0.72),
            (0.1, 0.01, 1e-3, 0.71), (0.01, 0.01, 1e-3, 0.73),
        ]
    ]  # fmt: skip
    cells = groups(figures.heat_map(summary_of(tmp_path, trials)), "heat-cell-")
    assert "0.7500" in cells["heat-cell-0-0"][0]
    assert "learning_rate = 0.01" in cells["heat-cell-0-0"][0]


def test_other_spaces_have_no_heat_map(tmp_path):
    for name, trials in {"experts": expert_trials(), "gate": gate_trials()}.items():
        assert figures.heat_map(summary_of(tmp_path / name, trials)) is None


def test_any_two_numbers_of_few_values_make_a_heat_map(tmp_path):
    trials = [
        trial(f"{k}{d}", {"top_k": k, "dropout": d}, [0.7 + k / 100 + d]) for k in (1, 2) for d in (0.0, 0.1)
    ]  # fmt: skip
    assert figures.grid_axes(summary_of(tmp_path, trials)) == ("top_k", "dropout")


def test_one_wild_trial_does_not_use_up_the_colours():
    # The best is 0.88, the median 0.865, four times their distance below the best is 0.82.
    found = figures.scale([0.1, 0.86, 0.87, 0.88], higher=True)
    assert found.low == pytest.approx(0.82)
    assert found.share(0.1) == 0.0
    assert found.share(0.85) == pytest.approx(0.5)


def test_a_small_loss_is_bright():
    found = figures.scale([0.5, 0.4, 0.3], higher=False)
    assert (found.share(0.3), found.share(0.5)) == (1.0, 0.0)


def test_bars_of_fig_6_are_named_and_ordered_by_n_k_d(tmp_path):
    drawing = figures.bars(summary_of(tmp_path, expert_trials()))
    names = [text for text in texts(drawing) if re.fullmatch(r"\d+, \d, \d", text)]
    assert names[:5] == ["10, 2, 1", "10, 2, 2", "10, 4, 1", "10, 4, 2", "16, 2, 1"]
    assert names[-1] == "32, 4, 2"
    bars = groups(drawing, "bars-bar-")
    assert len(bars) == 12
    assert [name for name, (_, style) in bars.items() if "var(--accent)" in style] == [
        "bars-bar-11"
    ]


def test_bars_keep_the_order_of_table_vii_and_say_where_the_axis_begins(tmp_path):
    drawing = figures.bars(summary_of(tmp_path, gate_trials()))
    shown = texts(drawing)
    places = [shown.index(name) for name in ("SC", "TC+SC", "query+TC+SC", "user+TC+SC", "all")]
    assert places == sorted(places)
    # 0.8129 less a quarter of 0.8212 - 0.8129.
    assert "session_auc (the axis begins at 0.8108)" in shown


def test_a_continuum_of_values_has_no_bars(tmp_path):
    trials = [trial(f"{i:02d}", {"learning_rate": 0.001 + i}, [0.7]) for i in range(41)]
    assert figures.bars(summary_of(tmp_path, trials)) is None


def test_bars_whose_names_would_not_fit_are_left_to_the_table(tmp_path):
    names = ("expert_hidden_dims", "trunk_hidden_dims")
    trials = [
        trial(str(i), {name: [1024, 512, 256, i] for name in names}, [0.7]) for i in (64, 128)
    ]
    assert figures.bars(summary_of(tmp_path, trials)) is None


def test_colours_are_the_page_s_and_ids_carry_the_name():
    with matplotlib.rc_context(svg.style()):
        figure = svg.new_figure(200, 100)
        figure.subplots().plot([1, 2], color=svg.SERIES_COLOURS[1])
        drawing = svg.to_svg(figure, "mine", "a <line>")
    assert "var(--series-2)" in drawing
    assert not re.search("|".join(svg.MARKS), drawing)
    assert 'aria-label="a &lt;line&gt;"' in drawing
    ids = re.findall(r' id="([^"]*)"', drawing)
    assert ids and all(found.startswith("mine-") for found in ids)
    used = re.findall(r'(?:url\(#|href="#)([^)"]*)', drawing)
    assert used and set(used) <= set(ids)
    assert "<style" not in drawing
