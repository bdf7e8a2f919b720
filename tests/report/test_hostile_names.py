"""Names that look like markup, templates or scripts are plain text on every kind of page."""

import itertools
import re
import shutil
from xml.etree import ElementTree

import pytest
from rich.console import Console

from tests.browser import chromium, run
from tests.report.cases import drift_row
from tests.report.conftest import REQUEST, SETTINGS
from tests.report.pages import Page
from tests.tiny import lists, write_data_folder
from tests.tuning.sweeps import failed, trial, write_sweep
from tfr_moe.config import make_config
from tfr_moe.report.build import build_report, render_report
from tfr_moe.report.drift import render_drift
from tfr_moe.report.html import write_page
from tfr_moe.report.query_explanation import explain_query
from tfr_moe.report.sweep import render_sweep
from tfr_moe.training import load_run, train
from tfr_moe.tuning.results import summarize_sweep

__all__ = ["chromium"]  # a fixture

EXECUTED = 'document.title="executed"'
TOPS = ["<!--<script>", f"</script><script>{EXECUTED}</script>"]
SUBS = [f"\"'><img src=x onerror='{EXECUTED}'>", "{{7*7}}{% raw %}{# ${7*7}", "日本語ö" * 60]
BRANDS = ["\u202eevil\u200f עברית", "a\u2028b&amp;&lt;", "<b>%{x}</b><br>$x$"]
BEGINNINGS = [
    "</td>",
    "-->",
    "]]>",
    "</style>",
    "\\u003cscript>",
    "{%",
    "<svg/onload=x>",
    "&#60;b>",
]
ENDINGS = ["<!--", "'", '"', "`${x}`", "\\"]
MORE = [f"{a}{EXECUTED}{b}" for a in BEGINNINGS for b in ENDINGS] + ["</p>\x7f", "=1+1"]
RUN = f"<!--<script>\"'{{{{7+7}}}}<img src=x onerror={EXECUTED}>"


def hostile_lists(count, seed):
    for number, (list_id, context, items) in enumerate(lists(count, seed)):
        context = {**context, "top": TOPS[number % 2], "sub": SUBS[number % 3]}
        items = [
            {**item, "brand": BRANDS[(number + i) % len(BRANDS)]} for i, item in enumerate(items)
        ]
        yield f"{list_id}</script>", context, items


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A report of one run, a comparison of two, three sweeps, drift and a query, by name."""
    folder = tmp_path_factory.mktemp("hostile")
    data = write_data_folder(folder / "data", 32, 16, 24, lists=hostile_lists)
    quiet = Console(quiet=True)
    settings = {**SETTINGS, "model": "adv_hsc_moe", "num_epochs": 1}
    train(data, folder / RUN, make_config(settings), quiet)
    shutil.copytree(folder / RUN, folder / f"{RUN}2")
    single = build_report(data, [folder / RUN], command=EXECUTED, console=quiet)
    both = build_report(data, [folder / RUN, folder / f"{RUN}2"], command=TOPS[1], console=quiet)
    values = [*TOPS, *SUBS, *BRANDS, *MORE]
    assert len(values) == 50
    texts = {
        "single": render_report(single, folder / "svg"),
        "comparison": render_report(both),
        "one setting": sweep_page(
            folder / RUN / "one", [({TOPS[0]: value[:20]}, i) for i, value in enumerate(values)]
        ),
        "lines": sweep_page(
            folder / RUN / "lines",
            [(dict.fromkeys(values, value), i) for i, value in enumerate(values)],
        ),
        "heat map": sweep_page(
            folder / RUN / "grid",
            [
                ({TOPS[0]: row, SUBS[0]: column}, i)
                for i, (row, column) in enumerate(itertools.product((1, 2), (3, 4)))
            ],
        ),
    }
    rows = [drift_row(v, c, 0.4, above={"psi": 0.3}) for v in values for c in ("", *TOPS)]
    texts["drift"] = render_drift(rows, f"data/{RUN}", RUN)
    items = [{**item, "brand": brand} for item, brand in zip(REQUEST["items"], MORE, strict=False)]
    context = {**REQUEST["context"], "top": TOPS[1], "sub": SUBS[0]}
    explain_query(load_run(folder / RUN), context, items).save(folder / "query.html")
    texts["query"] = (folder / "query.html").read_text(encoding="utf-8")
    for name, text in texts.items():
        write_page(text, folder / f"{name}.html")
    return {name: folder / f"{name}.html" for name in texts}


def sweep_page(path, settings):
    trials = [trial(f"{RUN}{i}", names, [0.7 + i / 100, 0.71]) for names, i in settings]
    trials.append(failed("x", settings[0][0], TOPS[1]))
    return render_sweep(summarize_sweep(write_sweep(path, trials, metric="session_auc", data=RUN)))


def test_figures_of_hostile_names_are_well_formed_files_in_their_folder(pages):
    files = list((pages["single"].parent / "svg").iterdir())
    texts = [e.text for file in files for e in ElementTree.parse(file).iter() if e.text]
    assert any("{{7*7}}" in text for text in texts)
    assert all(e.tag.endswith(("svg", "title", "style", "rect", "text", "g", "path", "circle"))
               for file in files for e in ElementTree.parse(file).iter())  # fmt: skip


KINDS = ["single", "comparison", "heat map", "one setting", "lines", "drift", "query"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_parses_and_all_names_are_text(pages, kind):
    text = pages[kind].read_text(encoding="utf-8")
    page = Page(text)
    assert len(page.scripts) == 1
    assert not page.handlers
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert "{{7+7}}" in page.text
    names = {"single": SUBS, "comparison": SUBS, "lines": [*TOPS, *SUBS, *MORE]}
    for name in names.get(kind, []):
        assert any(name in cell for cell in page.cells), name


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_executed(chromium, pages, tmp_path, kind):
    printed, console = run(
        chromium, pages[kind], tmp_path, "--dump-dom", "--virtual-time-budget=5000"
    )
    assert not console
    title = re.search("<title>(.*?)</title>", printed, re.DOTALL)[1]
    assert title != "executed"
    assert "<img" not in re.sub("<script.*?</script>", "", printed, flags=re.DOTALL)
