"""The verdicts of a report on cases made by hand: its first screen answers the five questions."""

import dataclasses
import itertools
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.report.cases import CASES, GAIN_OF_MIXTURE, TOPS, drift, gate_report
from tests.report.pages import Page, findings_of
from tfr_moe.analysis.drift_limits import DriftLimits
from tfr_moe.report import figures, gate_view
from tfr_moe.report.build import render_report
from tfr_moe.report.drift import render_drift
from tfr_moe.scorers.gate_maps import CategoryGate, GateMap


@pytest.fixture(scope="module")
def reports():
    return {name: case() for name, case in CASES.items()}


@pytest.fixture(scope="module")
def pages(reports):
    return {name: render_report(report) for name, report in reports.items()}


def first_screen(text):
    """The text before the table of contents."""
    before, _ = text[text.index("<main>") :].split("<nav", 1)
    return " ".join(re.sub("<[^>]*>", " ", before).split())


def test_a_winner_is_named_with_its_lead_its_cost_and_what_to_do(pages, reports):
    screen = first_screen(pages["wins"])
    assert screen.startswith("Which of 3 models ranks shop best? 600 test lists of data/shop, from")
    assert "no sampled negatives recorded" in screen
    assert "adv_hsc_moe wins" in screen
    against = reports["wins"].leaderboard.entries[0].differences["dnn"]
    # Four of six categories gain 0.03, shoes 0.06, food loses 0.03.
    assert against.difference == pytest.approx(GAIN_OF_MIXTURE * (4 + 2 - 1) / 6, abs=0.005)
    said = f"{against.difference:+.4f} [{against.low:+.4f}, {against.high:+.4f}] (significant)"
    assert f"{said} against dnn, the best single tower" in screen
    assert "All other models differ significantly from it." in screen
    assert f"▲ {against.difference:+.4f}" in screen
    assert "3.5 M 11 min 3.2 ms" in screen
    assert "Ship adv_hsc_moe." in screen and "tfr-moe export --run comparison/runs/" in screen


def test_where_it_wins_and_loses_is_said_by_category(pages):
    where = findings_of(pages["wins"])["where"]
    assert "significantly better than dnn in 5" in where
    assert "worse in 1 (food), of 6 top categories" in where


def test_without_a_difference_none_is_claimed(pages):
    screen = first_screen(pages["nothing_differs"])
    assert "No significant winner: adv_hsc_moe leads" in screen
    assert "Not significantly different from adv_hsc_moe: dnn, lambdamart." in screen
    assert "▲ +" not in screen and "▼ -" not in screen and "≈ +" in screen
    assert "or lambdamart if training time matters (14 s, not 640 s)" in screen
    assert "negatives sampled: these items were not shown" in screen
    assert "Confirm it on shown lists" in screen
    where = findings_of(pages["nothing_differs"])["where"]
    assert where == "adv_hsc_moe differs significantly from dnn in none of 6 top categories."


def test_a_collapsed_gate_is_called_out_with_the_remedy(pages, reports):
    screen = first_screen(pages["collapsed"])
    assert "✕ Problem of the gate of adv_hsc_moe: the gate has collapsed: all top" in screen
    assert "Retrain with these changes and compare again; until then, ship adv_hsc_moe." in screen
    remedy = "set importance_weight=0.1, or use fewer experts"
    assert (
        f"the gate has collapsed: all top categories have the same experts 0, 1; {remedy}" in screen
    )
    assert "6 of 8 experts get less than 1 %" in screen
    assert all(text.endswith(remedy) for text in reports["collapsed"].of_subject.warnings)
    assert "✕ dead: their parameters are unused" in Page(pages["collapsed"]).text
    assert "7 ✕" in Page(pages["collapsed"]).text


def test_a_report_of_several_tasks_says_what_each_label_says(pages):
    screen = first_screen(pages["tasks"])
    assert "labels buy, click" in screen
    assert re.search(r"mmoe-2 by the other labels: click_session_auc 0\.\d{4}, \+0\.0", screen)
    assert "against mmoe-1, the baseline" in screen and "--set seed=2" in screen
    assert "gate of buy" in pages["tasks"] and "gate of click" in pages["tasks"]


def test_gates_of_two_runs_are_side_by_side(pages):
    assert "Change of the gate between two runs" in pages["tasks"]
    assert "Against mmoe-1, buy, 2 of 6 top categories have another busiest" in pages["tasks"]
    assert "Change of the gate" not in pages["wins"]


def test_drift_is_told_by_column_with_its_limits_and_what_to_do():
    text = render_drift(drift(), "data/monday", "data/tuesday", DriftLimits(columns={"buy": {}}))
    screen = first_screen(text)
    assert screen.startswith("Has tuesday drifted from monday? data/tuesday against data/monday")
    assert "5,200 lists, reference 5,000 · 6 top categories" in screen
    assert "✕ 4 of 5 columns have drifted" in screen
    said = [
        "sales: missing 20.0 % instead of 0.0 %, allowed: 6.00 percentage points.",
        "price: PSI 0.41, allowed: 0.26; mean shift +0.72 sd (mean 19.7 instead of 12.5), "
        "allowed: 0.58 sd.",
        "brand: unknown IDs 31.0 % instead of 2.0 %, allowed: 21.00 percentage points.",
        "rating in toys: PSI 0.40, allowed: 0.30.",
    ]  # in multiples of what is allowed: 3.3, 1.6, 1.4, 1.3
    positions = [screen.index(sentence) for sentence in said]
    assert positions == sorted(positions)
    assert (
        "Check source and unit; if the change is real, train on the new data: price, rating"
        in screen
    )
    page = Page(text)
    assert page.headings[1:3] == ["Columns", "Top categories"]
    assert "2 of 6 top categories have drifted." in page.text
    assert "term-psi" in page.ids


def test_without_drift_the_day_goes_on():
    rows = [dataclasses.replace(row, exceeded={}) for row in drift()]
    screen = first_screen(render_drift(rows, "data/monday", "data/tuesday"))
    assert "No drift All 5 columns are within limits, in each category too." in screen
    assert "Train and publish as usual. tfr-moe train --from RUN --data data/tuesday" in screen


def test_figures_are_written_as_svg_files(reports, tmp_path):
    render_report(reports["wins"], tmp_path)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files[0] == "01-adv_hsc_moe-gate-weight-of-each-expert-by-top-category.svg"
    assert "04-calibration-of-adv_hsc_moe.svg" in files
    for name in files:
        root = ElementTree.parse(tmp_path / name).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(" not in (tmp_path / name).read_text(encoding="utf-8")
    texts = [e.text for e in ElementTree.parse(tmp_path / files[0]).iter() if e.text]
    assert {*TOPS, "0.70", "0.30"} <= set(texts)


def test_a_single_run_is_not_praised(pages):
    screen = first_screen(pages["single"])
    assert "Nothing to compare adv_hsc_moe with" in screen
    assert "Compare it with a tree model" in screen and "tfr-moe compare --data" in screen
    assert "scale ±" not in screen
    assert "(scale ±0.0" in first_screen(pages["collapsed"])


@pytest.mark.parametrize("name", CASES)
def test_each_section_opens_with_a_finding_and_each_word_is_explained(pages, name):
    text = pages[name]
    assert set(findings_of(text)) == {"where", "why", "trust", "lists", "method"}
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    assert len(text) < 1.5e6
    levels = [int(n) for n in re.findall(r"<h(\d)", text)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_ticks_of_a_chart_are_told_apart(pages):
    for figure in re.findall('<figure class="chart">.*?</figure>', pages["wins"], re.DOTALL):
        for axis in ('<text x="[^"]*" y="192">', '<text class="y"[^>]*>'):
            ticks = re.findall(f"{axis}(.*?)</text>", figure)
            assert len(ticks) > 1 and len(ticks) == len(set(ticks))


def test_experts_follow_the_categories_and_categories_their_gates():
    report = gate_report(6)
    maps = gate_view.gate_maps(report, "moe")
    assert [len(drawn.rows) for drawn in maps] == [6, 12]
    assert {name for name, _ in maps[0].columns} == set("012345")
    # Each top category has the experts i and i + 1: an expert serves two neighbours, 7 to 3.
    expert = next(e for e in gate_view.experts_of(report) if e["number"] == 1)
    assert expert["serves"] == [("books", pytest.approx(0.7)), ("shoes", pytest.approx(0.3))]
    weights = {"a": [1, 0], "b": [0, 1], "c": [1, 0], "d": [0, 1]}
    gates = [CategoryGate(name, "", 1, of_name) for name, of_name in weights.items()]
    names = "".join(gate.parent for gate in gate_view.clustered(gates))
    assert {names[:2], names[2:]} in ({"ac", "bd"}, {"ca", "bd"}, {"ac", "db"}, {"ca", "db"})


def gate_of(chosen):
    """The gate of three experts, of which each category, named by a letter, selects one."""
    gate = GateMap(3)
    ids, tops = np.array([[n] for n in chosen.values()]), np.array(list(chosen), object)
    gate.add(ids, np.ones(ids.shape), np.ones([len(ids), 2], bool), tops, tops)
    return gate.report()


def test_gates_of_two_runs_are_compared_whatever_the_order_of_their_experts():
    # Expert 0 is 2 in the old run, 1 is 0; so only c, which had the expert of b, has another one.
    new, old = gate_of({"a": 0, "b": 1, "c": 2}), gate_of({"a": 2, "b": 0, "c": 0})
    finding, maps = gate_view.gate_change(new, old, ("new", "old"))
    assert finding == (
        "Against old, 1 of 3 top categories have other experts; 33 % of the weight has moved, "
        "most in c (100 %)."
    )
    assert maps[0].rows == maps[1].rows
    matched = dict(zip(*([name for name, _ in drawn.columns] for drawn in maps), strict=True))
    assert matched == {"0": "2", "1": "0", "2": "1 ✕"}
    same, _ = gate_view.gate_change(new, gate_of({"a": 1, "b": 2, "c": 0}), ("new", "old"))
    assert (
        same
        == "Against old, 0 of 3 top categories have other experts; 0 % of the weight has moved."
    )
    assert gate_view.gate_change(new, gate_report(6), ("new", "old")) is None


def test_attention_near_uniform_stays_pale(reports):
    attention = next(run for run in reports["wins"].runs if run.attention).attention["position"]
    cells = [cell for row in figures.attention("dnn", "position", attention).cells for cell in row]
    assert max(abs(cell.share) for cell in cells) == pytest.approx(0.03)
