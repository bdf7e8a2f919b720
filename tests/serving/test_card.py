"""The model card: counts by category, and what it says where nothing is known."""

from __future__ import annotations

from tests.serving.conftest import CONTEXT, elwc, shop_items
from tests.serving.models import SHOP
from tfr_moe.release import spread_by_size
from tfr_moe.serving.card import Sample, coverage_of, model_card, sample_of

TOYS = {**CONTEXT, "top": "toys", "sub": "balls"}
LISTS = [elwc(shop_items(2)), elwc(shop_items(5), TOYS), elwc(shop_items(3), TOYS)]


def test_lists_are_counted_by_category_and_size():
    sample = sample_of(SHOP, LISTS)
    assert sample.sizes == [2, 5, 3]
    assert sample.categories == [("food", "food > bread"), *[("toys", "toys > balls")] * 2]


def test_the_card_tells_coverage_metrics_and_limits():
    sample = sample_of(SHOP, LISTS)
    coverage = coverage_of(sample.categories, ["toys > balls", "toys > dolls"], " > ")
    details = {
        "config": {"model": "adv_hsc_moe", "seed": 7, "loss": "ordinal_loss", "list_size": 30},
        "metrics": {"best": {"val_ndcg": 0.5, "loss": 1.0}, "best_epoch": 4, "train_lists": 99},
        "data": {"splits": {"train": {"lists": 99, "rows": 800, "files": ["a"]}}},
    }
    card = model_card("shop", SHOP, details, sample, coverage, ["Only for toys."])
    for line in (
        "# Model card: shop",
        "* Only for toys.",
        "* train: 99 lists, 800 rows",
        "| ndcg | 0.5000 |",
        "| toys | 2 | 2 | 0 |",
        "| food | 0 | 1 | 1 |",
        "* A request without one of these is refused: price.",
    ):
        assert line in card.splitlines(), line
    assert "33.3 % have a sub-category that training did not see" in card
    assert "at most 30 items; the validation lists looked at had 2 to 5 items" in card


def test_a_card_without_data_says_so():
    card = model_card("shop", SHOP, {}, Sample([], []), [])
    assert "None are kept with this model." in card
    assert "The data have no category tree." in card


def test_warm_up_lists_have_all_sizes_and_no_more_than_sixteen():
    lists = [f"{i}".encode() for i in range(1000)]
    sizes = [5] * 997 + [1, 7, 200]
    chosen = spread_by_size(lists, sizes)
    assert len(chosen) == len(set(chosen)) == 16
    assert {b"997", b"998", b"999"} <= set(chosen)
    many = spread_by_size(lists, list(range(1000)))
    assert len(many) == 16
    assert {lists[0], lists[999]} <= set(many)
