"""A report of two runs: its numbers are those of the evaluation, as JSON and on the page."""

import json
import re

import pytest

from tests.tiny import lists
from tfr_moe.cli import main
from tfr_moe.comparison import evaluate_runs
from tfr_moe.errors import UserError
from tfr_moe.reporting.figures import library
from tfr_moe.reporting.gather import Options, gather


@pytest.fixture(scope="module")
def made(root):
    """The page's text and the JSON that the command wrote."""
    page, numbers = root / "report.html", root / "report.json"
    with pytest.raises(SystemExit) as caught:
        main(["report", "--data", str(root / "data"), "--run", str(root / "dnn"), "--run",
              str(root / "moe"), "--out", str(page), "--json", str(numbers)])  # fmt: skip
    assert caught.value.code == 0
    return page.read_text(encoding="utf-8"), json.loads(numbers.read_text())


@pytest.fixture(scope="module")
def evaluated(root):
    return evaluate_runs(root / "data", [root / "moe"], root / "dnn")


def test_numbers_are_those_of_evaluate(made, evaluated):
    page, found = made
    assert found["evaluation"]["baseline"] == "dnn"
    for run, summaries in evaluated.models.items():
        for metric, summary in summaries.items():
            assert found["evaluation"]["models"][run][metric]["mean"] == pytest.approx(summary.mean)
            assert f"<td>{summary.mean:.4f}</td>" in page
    against = evaluated.comparisons["moe"]["session_auc"]
    assert f"<td>{against.difference:+.4f}</td>" in page


def test_categories_are_told_at_both_levels_with_their_sizes(made):
    _, found = made
    trained = [context["top"] for _, context, _ in lists(48, 1)]
    assert found["data"]["categories"] == [2, 4]
    rows = found["evaluation"]["categories"]
    assert (
        sum(row["lists"] for row in rows) == sum(r["lists"] for r in found["sub_categories"]) == 40
    )
    sizes = sorted([trained.count("a"), trained.count("b")])
    buckets = found["sizes"]["top"]["moe"]
    assert [row["name"] for row in buckets] == [f"{i}: {n} to {n}" for i, n in enumerate(sizes, 1)]


def test_each_run_tells_what_there_is_of_it(made):
    page, found = made
    dnn, moe = found["runs"]
    assert dnn["gates"] == {}
    assert sum(moe["gates"][""]["utilisation"]) == pytest.approx(1)
    assert {c["name"] for c in moe["curves"]["shares"]} == {"hsc_share", "adversarial_share"}
    assert len(moe["lists"]["worst"]) == 4
    assert moe["settings"]["num_experts"] == 4
    for run in found["runs"]:
        items = [item for shown in run["lists"]["worst"] for item in shown["items"]]
        assert all(item["features"].keys() == {"brand", "price", "sales"} for item in items)
        assert run["calibration"][""]["items"] == sum(len(i) for _, _, i in lists(40, 3))
    assert "no gate map, as it has no experts" in page
    assert "no attention maps" in page


def test_the_page_needs_no_network_and_has_all_its_figures(made):
    page, _ = made
    assert len(page) < 6e6
    own = page.replace(library(), "")
    assert not re.search(r'(?:src|href)="(?!data:|#run-)', own)
    specs = json.loads(re.search(r'id="figures">(.*?)</script>', page, re.DOTALL)[1])
    assert set(specs) == set(re.findall(r'class="plot" id="(.*?)"', page))
    heat = [f for f in specs.values() if f["data"][0]["type"] == "heatmap"]
    assert [len(figure["data"][0]["z"]) for figure in heat] == [2, 4]
    assert "Made by" in page


def test_mistakes_are_told_before_anything_is_scored(root, tmp_path):
    with pytest.raises(UserError, match="unknown"):
        gather(root / "data", [root / "dnn"], options=Options(metric="accuracy"))
    with pytest.raises(SystemExit) as caught:
        main(["report", "--data", str(root / "data"), "--run", str(root / "dnn"), "--out",
              str(tmp_path / "none" / "x.html")])  # fmt: skip
    assert caught.value.code == 2
