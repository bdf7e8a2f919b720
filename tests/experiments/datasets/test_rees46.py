from __future__ import annotations

import csv
import gzip
import importlib
import sys
from collections import Counter
from types import ModuleType

import pytest

from tests.records import typed_row
from tfr_moe.schema import FeatureSchema


@pytest.fixture(scope="module")
def prepare() -> ModuleType:
    return importlib.import_module("experiments.datasets.rees46.prepare")


def event(prepare, time, kind, product, session="s", code="toys.blocks.wood", price=2.0):
    return prepare.Event(
        float(time), kind, product, tuple(code.split(".")), "acme", price, "user", session
    )


def test_items_are_graded_by_their_best_event_and_placed_by_their_first(prepare):
    events = [
        event(prepare, 1, "view", "b", price=4.0),
        event(prepare, 2, "view", "a"),
        event(prepare, 3, "purchase", "b"),
        event(prepare, 4, "cart", "b"),
        event(prepare, 5, "view", "c"),
        event(prepare, 6, "cart", "c"),
    ]
    rows = list(prepare.rows(events, Counter()))
    seen = [(row["product_id"], row["position"], row["grade"]) for row in rows]
    assert seen == [("b", 1, 2), ("a", 2, 0), ("c", 3, 1)]
    # Prices at the first event are 4, 2 and 2: the median is 2.
    assert [row["price_to_list"] for row in rows] == [2.0, 1.0, 1.0]
    assert {row["product_kind"] for row in rows} == {"wood"}


def test_a_list_does_not_see_its_own_events_nor_later_ones(prepare):
    earlier = [
        event(prepare, 1, "view", "a", session="r"),
        event(prepare, 2, "cart", "a", session="r"),
    ]
    of_list = [event(prepare, 5, "view", "a"), event(prepare, 6, "purchase", "b")]
    later = [event(prepare, 7, "purchase", "a", session="t")]
    rows = list(prepare.rows([*earlier, *of_list, *later], Counter()))
    assert [(r["product_id"], r["item_views"], r["item_carts"]) for r in rows] == [
        ("a", 1, 1),
        ("b", 0, 0),
    ]
    assert {r["item_purchases"] for r in rows} == {0}
    assert [r["user_item_events"] for r in rows] == [2, 0]
    assert {r["user_events"] for r in rows} == {2}


def test_lists_that_say_nothing_are_left_out_and_counted(prepare):
    events = [
        event(prepare, 1, "purchase", "a", session="one product"),
        event(prepare, 2, "view", "a", session="views"),
        event(prepare, 3, "view", "b", session="views"),
        event(prepare, 4, "cart", "a", session="good"),
        event(prepare, 5, "view", "b", session="good"),
        event(prepare, 6, "view", "c", session="good", code="toys.dolls"),
    ]
    counts: Counter[str] = Counter()
    rows = list(prepare.rows(events, counts))
    assert {row["list_id"] for row in rows} == {"good/toys.blocks"}
    assert counts["left out: lists of one product"] == 2
    assert counts["left out: lists of nothing but views"] == 1


def test_the_real_file_gives_the_documented_counts(
    prepare, real_data, repository, tmp_path, monkeypatch, capsys
):
    folder = real_data / "rees46"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    monkeypatch.setattr(sys, "argv", ["prepare.py", "--data", str(folder), "--out", str(tmp_path)])
    prepare.main()
    printed = " ".join(capsys.readouterr().out.split())
    for count in ("17,435 rows read", "324 rows written", "91 lists", "15 categories"):
        assert count in printed
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv.gz"]

    schema = FeatureSchema.load(repository / "experiments/datasets/rees46/schema.yaml")
    with gzip.open(tmp_path / "rows.csv.gz", "rt") as file:
        rows = [typed_row(schema, row) for row in csv.DictReader(file)]
    assert Counter(row.example["grade"] for row in rows) == {0: 223, 1: 31, 2: 70}
    contexts: dict[str, dict] = {}
    assert all(contexts.setdefault(row.list_id, row.context) == row.context for row in rows)
