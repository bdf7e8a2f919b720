"""A report of two runs: its numbers are those of the evaluation, as JSON and on the page."""

import json

import pytest

from tests.report.pages import Page, findings_of
from tfr_moe.cli import main
from tfr_moe.errors import UserError
from tfr_moe.evaluation.evaluate import evaluate_runs
from tfr_moe.report.build import build_report


@pytest.fixture(scope="module")
def made(root):
    """The page's text and the JSON that the command wrote."""
    page, numbers = root / "report.html", root / "report.json"
    with pytest.raises(SystemExit) as caught:
        main(["report", "--data", str(root / "data"), "--run", str(root / "dnn"), "--run",
              str(root / "moe"), "--out", str(page), "--json", str(numbers),
              "--importance", "12", "--svg", str(root / "svg")])  # fmt: skip
    assert caught.value.code == 0
    return page.read_text(encoding="utf-8"), json.loads(numbers.read_text())


@pytest.fixture(scope="module")
def evaluated(root):
    return evaluate_runs(root / "data", [root / "moe"], root / "dnn")


def test_numbers_are_those_of_evaluate(made, evaluated):
    page, actual = made
    cells = Page(page).cells
    assert actual["evaluation"]["baseline"] == "dnn"
    for run, summaries in evaluated.models.items():
        for metric, summary in summaries.items():
            assert actual["evaluation"]["models"][run][metric]["mean"] == pytest.approx(
                summary.mean
            )
            at = next(
                i for i, cell in enumerate(cells) if [cell, *cells[i + 1 : i + 2]] == [metric, run]
            )
            assert cells[at + 2] == f"{summary.mean:.4f}"
    against = evaluated.comparisons["moe"]["session_auc"]
    assert any(f"{against.difference:+.4f}" in cell for cell in cells)


def test_the_leaderboard_is_of_the_runs_as_given(made):
    page, actual = made
    board = actual["leaderboard"]
    assert board["baseline"] == "dnn" and {e["model"] for e in board["entries"]} == {"dnn", "moe"}
    assert actual["subject"] == "moe"
    assert sum(actual["list_counts"].values()) == actual["evaluation"]["models"]["moe"][
        "session_auc"]["evaluated"]  # fmt: skip
    assert board["headline"] in page


def test_the_figures_are_in_files_too(made, root):
    page, _ = made
    assert len(list((root / "svg").glob("*.svg"))) == page.count('class="chart"') + page.count(
        'class="heat"'
    )


def test_category_tables_cover_all_lists_at_both_levels(made):
    _, actual = made
    assert actual["data"]["hierarchy"] == ["top", "sub"]
    rows = actual["evaluation"]["categories"]
    assert (
        sum(row["lists"] for row in rows) == sum(r["lists"] for r in actual["sub_categories"]) == 40
    )


def test_each_run_has_gates_curves_and_lists_where_they_apply(made):
    page, actual = made
    dnn, moe = actual["runs"]
    assert dnn["gates"] == {}
    assert sum(moe["gates"][""]["utilisation"]) == pytest.approx(1)
    assert moe["curves"]["HSC"].keys() == {"hsc"}
    assert moe["curves"]["AdvLoss, share of its maximum"].keys() == {"adversarial_share"}
    assert len(actual["lists"]["worst"]) == 4
    assert actual["importance"]["lists"] == 12
    assert page.count("<h3>Importance of features</h3>") == 1
    assert moe["settings"]["num_experts"] == 4
    items = [item for example in actual["lists"]["worst"] for item in example["items"]]
    assert all(item["features"].keys() == {"brand", "price", "sales"} for item in items)
    assert dnn["milliseconds"] > 0 and dnn["metrics"]["epochs"] == 1
    assert moe["calibration"]["mean_observed"] > 0


def test_the_page_needs_no_network_and_opens_sections_with_a_finding(made):
    text, _ = made
    page = Page(text)
    assert len(text) < 1.5e6
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    assert '<meta name="viewport"' in text
    assert set(findings_of(text)) == {"where", "why", "trust", "lists", "method"}


def test_user_errors_are_raised_before_scoring(root, tmp_path, capsys):
    with pytest.raises(UserError, match="unknown"):
        build_report(root / "data", [root / "dnn"], metric="accuracy")
    # The run has no attention to group.
    with pytest.raises(UserError, match="by: 'sub' is not an ID or number of the items"):
        build_report(root / "data", [root / "dnn"], attention_by=["sub"])
    with pytest.raises(SystemExit) as caught:
        main(["report", "--data", str(root / "data"), "--run", str(root / "dnn"), "--out",
              str(tmp_path / "none" / "x.html")])  # fmt: skip
    assert caught.value.code == 2
    assert "--out" in capsys.readouterr().err
