"""The page of a sweep: whole, on its own, and with every text escaped."""

import re
from collections import Counter
from html.parser import HTMLParser

import pytest

from tests.tuning.sweeps import (
    expert_trials,
    failed,
    gate_trials,
    lambda_trials,
    trial,
    write_sweep,
)
from tfr_moe.tuning.best import best_config
from tfr_moe.tuning.page import render
from tfr_moe.tuning.summary import summarize_sweep

VOID = {"meta", "link", "br", "!doctype"}


class Page(HTMLParser):
    """Text, headings, ids, links and whether every element is closed in its turn."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.headings = [], [], [], []
        self.cells = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids += [given["id"]] if "id" in given else []
        self.links += [v for k, v in attrs if k in ("src", "href", "xlink:href", "data", "action")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)
        if self.open and self.open[-1] == "td":
            self.cells.append(data)


def page_of(tmp_path, trials, name="sweep", **given):
    summary = summarize_sweep(write_sweep(tmp_path / name, trials))
    settings = best_config(summary).model_dump(mode="json") if summary.best else None
    return render(summary, settings, **given)


@pytest.mark.parametrize("trials", [lambda_trials(), expert_trials(), gate_trials(), []])
def test_the_page_is_well_formed_and_needs_no_network(tmp_path, trials):
    text = page_of(tmp_path, trials)
    page = Page(text)
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert not [i for i, count in Counter(page.ids).items() if count > 1]
    assert "@import" not in text and "<script" not in text
    assert not re.search(r"url\((?!#)", text)
    assert '<meta name="viewport"' in text


def test_sections_follow_from_what_was_varied(tmp_path):
    common = ["All trials", "Learning curves"]
    lambdas = Page(page_of(tmp_path, lambda_trials(), "a")).headings
    experts = Page(page_of(tmp_path, expert_trials(), "b")).headings
    gates = Page(page_of(tmp_path, gate_trials(), "c")).headings
    after = ["Parallel coordinates", "By value", "What was run"]
    assert lambdas == ["Best configuration", "Heat map", *common, *after]
    assert experts == ["Best configuration", "By setting", *common, *after]
    assert gates == ["Best configuration", "By setting", *common, "What was run"]
    assert Page(page_of(tmp_path, [], "d")).headings == ["What was run"]


def test_every_result_stands_in_the_table(tmp_path):
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
    text = render(summary)
    Page(text)
    assert "<script" not in text and "a<b>" not in text and "<unknown>" not in text
    assert "shapes &lt;unknown&gt; &amp; &quot;None&quot;" in text
    assert "&lt;script&gt;" in text


def test_an_unfinished_sweep_says_how_far_it_is(tmp_path):
    path = write_sweep(tmp_path / "s", [*lambda_trials()[:3], failed("x", {"hsc_weight": 9}, "no")])
    (path / "work" / "0003").mkdir(parents=True)
    text = render(summarize_sweep(path))
    for tile in ("<b>3</b><span>trials with a result", "<b>1</b><span>trials failed"):
        assert tile in text
    assert "<b>1</b><span>trials running or interrupted" in text
    assert text.index("Failed trials") < text.index("All trials")


RETRAINED = {
    "trial_id": "0010",
    "runs": [{"seed": 3}, {"seed": 4}],
    "summary": {
        "test": {"session_auc": {"mean": 0.8101, "std": 0.001, "low": 0.8011, "high": 0.8191}},
        "validation": {"session_auc": {"mean": 0.82, "std": None, "low": None, "high": None}},
    },
}


def test_retrained_runs_are_shown_with_their_interval(tmp_path):
    text = page_of(tmp_path, lambda_trials(), retrained=RETRAINED)
    cells = Page(text).cells
    at = cells.index("0.8101")
    assert cells[at - 2 : at + 2] == ["session_auc", "test", "0.8101", "0.8011 to 0.8191"]
    assert "seeds 3, 4" in text
    assert "the best before" not in text


def test_retrained_runs_of_an_earlier_best_are_called_that(tmp_path):
    text = page_of(tmp_path, lambda_trials(), retrained={**RETRAINED, "trial_id": "0001"})
    assert "These are runs of trial 0001, which was the best before." in text
