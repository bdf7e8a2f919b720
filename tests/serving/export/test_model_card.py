"""The model card, with and without data."""

from __future__ import annotations

from tests.serving.conftest import CONTEXT, elwc, shop_items
from tests.serving.models import SHOP
from tfr_moe.serving.export.export import spread_by_size
from tfr_moe.serving.export.model_card import Sample, model_card, sample_of

TOYS = {**CONTEXT, "top": "toys", "sub": "balls"}
LISTS = [elwc(shop_items(2)), elwc(shop_items(5), TOYS), elwc(shop_items(3), TOYS)]


def test_a_sample_has_sizes_and_categories():
    sample = sample_of(SHOP, LISTS)
    assert sample.sizes == [2, 5, 3]
    assert sample.categories == ["food > bread", "toys > balls", "toys > balls"]


def test_the_card_has_coverage_metrics_and_limits():
    sample = sample_of(SHOP, LISTS)
    known = {"toys > balls", "toys > dolls"}
    details = {
        "config": {"model": "adv_hsc_moe", "seed": 7, "loss": "ordinal_loss", "list_size": 30},
        "metrics": {"best": {"val_ndcg": 0.5, "loss": 1.0}, "best_epoch": 4, "train_lists": 99},
        "data": {"splits": {"train": {"lists": 99, "rows": 800, "files": ["a"]}}},
    }
    card = model_card("shop", SHOP, details, sample, known)
    for line in (
        "# Model card: shop",
        "* train: 99 lists, 800 rows",
        "| ndcg | 0.5000 |",
        "* Required features: price. A request without one of them is rejected.",
    ):
        assert line in card.splitlines(), line
    assert "The model knows 2 sub-categories. Of 3 validation lists, 33.3 % have a" in card
    assert "at most 30 items; the validation lists have 2 to 5 items" in card


def test_a_card_without_data_says_so():
    card = model_card("shop", SHOP, {}, Sample([], []), set())
    assert "None are stored with this model." in card
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
