"""A report of two runs: its numbers are those of the evaluation, as JSON and on the page."""

import json

import pytest

from tests.report.pages import Page, figures_of, sections_without_a_sentence
from tfr_moe.cli import main
from tfr_moe.errors import UserError
from tfr_moe.evaluation.evaluate import evaluate_runs
from tfr_moe.report.build import ReportOptions, build_report


@pytest.fixture(scope="module")
def made(root):
    """The page's text and the JSON that the command wrote."""
    page, numbers = root / "report.html", root / "report.json"
    with pytest.raises(SystemExit) as caught:
        main(["report", "--data", str(root / "data"), "--run", str(root / "dnn"), "--run",
              str(root / "moe"), "--out", str(page), "--json", str(numbers),
              "--importance", "12"])  # fmt: skip
    assert caught.value.code == 0
    return page.read_text(encoding="utf-8"), json.loads(numbers.read_text())


@pytest.fixture(scope="module")
def evaluated(root):
    return evaluate_runs(root / "data", [root / "moe"], root / "dnn")


def test_numbers_are_those_of_evaluate(made, evaluated):
    page, found = made
    cells = Page(page).cells
    assert found["evaluation"]["baseline"] == "dnn"
    for run, summaries in evaluated.models.items():
        for metric, summary in summaries.items():
            assert found["evaluation"]["models"][run][metric]["mean"] == pytest.approx(summary.mean)
            at = next(
                i for i, cell in enumerate(cells) if [cell, *cells[i + 1 : i + 2]] == [metric, run]
            )
            assert cells[at + 2] == f"{summary.mean:.4f}"
    against = evaluated.comparisons["moe"]["session_auc"]
    assert f"{against.difference:+.4f}" in cells


def test_category_tables_cover_all_lists_at_both_levels(made):
    _, found = made
    assert found["data"]["categories"] == [2, 4]
    rows = found["evaluation"]["categories"]
    assert (
        sum(row["lists"] for row in rows) == sum(r["lists"] for r in found["sub_categories"]) == 40
    )


def test_each_run_has_gates_curves_and_lists_where_they_apply(made):
    page, found = made
    dnn, moe = found["runs"]
    assert dnn["gates"] == {}
    assert sum(moe["gates"][""]["utilisation"]) == pytest.approx(1)
    assert {c["name"] for c in moe["curves"]["shares"]} == {"hsc_share", "adversarial_share"}
    assert len(moe["lists"]["worst"]) == 4
    assert [run["importance"]["lists"] for run in (dnn, moe)] == [12, 12]
    assert page.count("<h3>Importance of features</h3>") == 2
    assert moe["settings"]["num_experts"] == 4
    for run in found["runs"]:
        items = [item for shown in run["lists"]["worst"] for item in shown["items"]]
        assert all(item["features"].keys() == {"brand", "price", "sales"} for item in items)
    assert "gates: the model has no experts" in page
    assert "attention maps: the model has no attention" in page


def test_the_page_needs_no_network_and_has_all_its_figures(made):
    text, found = made
    page = Page(text)
    assert len(text) < 6e6
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert len(page.ids) == len(set(page.ids))
    assert '<meta name="viewport"' in text
    specs = figures_of(text)
    assert set(specs) == {name for name in page.ids if name.startswith("figure-")}
    in_order = [specs[name] for name in sorted(specs, key=lambda name: int(name.split("-")[1]))]
    heat = [f for f in in_order if f["data"][0]["type"] == "heatmap"]
    assert [len(figure["data"][0]["z"]) for figure in heat] == [2, 4]
    assert (
        heat[0]["data"][0]["z"][0] == found["runs"][1]["gates"][""]["top_categories"][0]["weights"]
    )
    assert "Made by" in page.headings
    assert not sections_without_a_sentence(text)


def test_every_figure_has_axis_titles(made):
    for figure in figures_of(made[0]).values():
        titles = [figure["layout"][axis].get("title") for axis in ("xaxis", "yaxis")]
        # The names of metrics and categories on the y axis speak for themselves.
        named = (
            "category" in figure["layout"]["yaxis"].values()
            or "ticktext" in figure["layout"]["yaxis"]
        )
        assert titles[0] and (titles[1] or named), figure["layout"]


def test_user_errors_are_raised_before_scoring(root, tmp_path, capsys):
    with pytest.raises(UserError, match="unknown"):
        build_report(root / "data", [root / "dnn"], options=ReportOptions(metric="accuracy"))
    with pytest.raises(SystemExit) as caught:
        main(["report", "--data", str(root / "data"), "--run", str(root / "dnn"), "--out",
              str(tmp_path / "none" / "x.html")])  # fmt: skip
    assert caught.value.code == 2
    assert "--out" in capsys.readouterr().err
