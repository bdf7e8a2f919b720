"""The ranked table."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console

from tfr_moe.cli.serving import ranking_json, ranking_table
from tfr_moe.serving.client import Expert, RankedItem, Ranking

ITEMS = [
    {"title": "[b]ball[/b]", "price": 9.5},
    {"title": "doll", "tags": ["new", "sale"], "price": None},
]


def lines_of(ranking: Ranking) -> list[str]:
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(ranking_table(ranking, ITEMS))
    return [line.rstrip() for line in console.export_text().splitlines()]


def printed(ranking: Ranking) -> dict[str, Any]:
    return json.loads(json.dumps(ranking_json(ranking, ITEMS)))


def test_items_are_in_rank_order_with_their_fields():
    lines = lines_of(Ranking("shop", 3, (RankedItem(1, 2.0), RankedItem(0, -0.25))))
    assert lines[0] == "shop version 3"
    assert lines[1].split() == ["rank", "item", "score", "title", "price", "tags"]
    assert lines[3].split() == ["1", "1", "2.0000", "doll", "new", "sale"]
    assert lines[4].split() == ["2", "0", "-0.2500", "[b]ball[/b]", "9.5"]
    assert len(lines) == 5


def test_the_experts_of_the_list_are_below_the_table():
    experts = (Expert(7, 0.75), Expert(2, 0.25))
    lines = lines_of(Ranking("shop", 3, (RankedItem(0, 1.0),), experts))
    assert lines[-1] == "experts (weight): 7 (0.75), 2 (0.25)"


def test_the_experts_of_an_item_are_in_its_row():
    lines = lines_of(Ranking("shop", 3, (RankedItem(0, 1.0, (Expert(4, 1.0),)),)))
    assert lines[1].endswith("experts (weight)")
    assert lines[3].endswith("4 (1.00)")


def test_json_has_the_same_in_the_same_order():
    ranking = Ranking("shop", 3, (RankedItem(1, 2.0), RankedItem(0, -0.25)), (Expert(7, 1.0),))
    assert printed(ranking) == {
        "model": "shop",
        "version": 3,
        "items": [
            {"rank": 1, "index": 1, "score": 2.0, "item": ITEMS[1]},
            {"rank": 2, "index": 0, "score": -0.25, "item": ITEMS[0]},
        ],
        "experts": [{"id": 7, "weight": 1.0}],
        "task_experts": {},
    }


def test_json_keeps_the_experts_of_each_item():
    answer = printed(Ranking("shop", 3, (RankedItem(0, 1.0, (Expert(4, 1.0),)),)))
    assert answer["items"][0]["experts"] == [{"id": 4, "weight": 1.0}]
    assert answer["experts"] == []
