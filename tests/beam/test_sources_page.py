"""docs/sources.md says what there is, and its source and features work as they stand."""

import re
import types
from dataclasses import replace

import pytest

from tfr_moe.beam import BuildOptions, build
from tfr_moe.beam.sources import sources
from tfr_moe.cli.data import source_help
from tfr_moe.errors import UserError

SCHEMA = """
list_id: query
labels: [grade]
features:
  - {name: item, scope: example, kind: categorical}
  - {name: price, scope: example, kind: numeric}
"""


@pytest.fixture(scope="module")
def page(repository):
    return (repository / "docs" / "sources.md").read_text(encoding="utf-8")


def block(page, language):
    (result,) = re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return result


def test_the_table_names_every_source(page):
    table = set(re.findall(r"^\| `([a-z-]+)` \|(?:[^|\n]*\|){4}$", page, re.MULTILINE))
    built_in = {n for n, s in sources().items() if s.read.__module__.startswith("tfr_moe.")}
    assert built_in == table


def test_the_source_of_the_page_builds(page, tmp_path, monkeypatch):
    source = block(page, "python")
    assert len(source.splitlines()) <= 33
    module = types.ModuleType("price_lists")
    monkeypatch.setitem(__import__("sys").modules, "price_lists", module)
    exec(source, module.__dict__)
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    (tmp_path / "prices.txt").write_text("q1 1 boots 19.90\nq1 0 shoes 5\nq2 1 hat 3\nbroken\n")
    options = BuildOptions(
        "price-lists",
        f"{tmp_path}/prices.txt",
        tmp_path / "schema.yaml",
        tmp_path / "data",
        validation_fraction=0.0,
        test_fraction=0.0,
        max_lost=0.25,
    )
    manifest = build(options)
    assert manifest["rows"] == {"read": 4, "written": 3, "rejected": 1, "cut": 0}
    assert manifest["rejects"] == {"expected 4 fields": 1}
    (tmp_path / "schema.yaml").write_text(SCHEMA.replace("name: price", "name: prize"))
    with pytest.raises(UserError, match=r"missing column 'prize'.*did you mean 'price'"):
        build(replace(options, out=tmp_path / "misspelled"))


def test_help_has_purpose_schema_and_options_of_a_source():
    text = "\n".join(source_help("search-logs"))
    assert text.startswith("search-logs: Impressions: CSV with a header")
    assert "--schema is required" in text and "join_by (default " in text
    assert "search-logs " in str(source_help(None))
    with pytest.raises(UserError, match=r"unknown source 'x'; available: .*search-logs"):
        source_help("x")
