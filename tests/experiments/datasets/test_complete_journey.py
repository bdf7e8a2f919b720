from __future__ import annotations

import importlib
import itertools
import random
import shutil
import sys
from collections import Counter
from types import ModuleType
from typing import Any

import pytest

from tests.beam import logs
from tests.records import typed_row
from tfr_moe.schema import FeatureSchema


@pytest.fixture(scope="module")
def prepare() -> ModuleType:
    return importlib.import_module("experiments.datasets.complete_journey.prepare")


def make(prepare, sales, products, until=1e12, negatives=25, seed=0):
    counts: Counter[str] = Counter()
    return list(prepare.rows(sales, products, {}, until, negatives, seed, counts)), counts


def lists_of(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    return [list(group) for _, group in itertools.groupby(rows, key=lambda row: row["list_id"])]


@pytest.fixture(scope="module")
def chance(prepare):
    """A world without taste: anybody buys anything of one shelf at any time, at a random price."""
    dice = random.Random(5)
    products = {
        f"p{i}": prepare.Product("FOOD", "TEA", f"type{i % 4}", f"brand{i % 2}", f"maker{i % 5}")
        for i in range(15)
    }
    sales = [
        prepare.Sale(
            100.0 * n,
            f"basket{n}",
            dice.choice(sorted(products)),
            f"household{dice.randrange(30)}",
            dice.uniform(1, 3),
        )
        for n in range(2500)
    ]
    return sales, products


COUNTED = (
    "item_sales",
    "item_share",
    "days_since_sale",
    "price",
    "price_to_category",
    "household_type",
    "household_brand",
    "household_manufacturer",
    "household_item",
)


def telling(rows: list[dict[str, Any]]) -> set[str]:
    """Features that alone tell positives from negatives: AUC within lists off 0.5 by over 0.03."""
    result = set()
    for name in COUNTED:
        wins, pairs = 0.0, 0
        for group in lists_of(rows):
            (positive,) = (row[name] for row in group if row["purchase"])
            others = [row[name] for row in group if not row["purchase"]]
            wins += sum(1.0 if positive > x else 0.5 * (positive == x) for x in others)
            pairs += len(others)
        if abs(wins / pairs - 0.5) > 0.03:
            result.add(name)
    return result


def test_where_purchases_are_chance_no_feature_tells_the_positive(prepare, chance):
    rows, _ = make(prepare, *chance)
    assert len(lists_of(rows)) > 2000
    assert telling(rows) == set()


def test_a_planted_leak_of_the_own_purchase_is_noticed(prepare, chance):
    rows, _ = make(prepare, *chance)
    leaking = [{**row, "item_sales": row["item_sales"] + row["purchase"]} for row in rows]
    assert telling(leaking) == {"item_sales"}


def test_a_planted_leak_by_sparing_what_the_household_bought_is_noticed(prepare, chance):
    rows, _ = make(prepare, *chance)
    leaking = [row for row in rows if row["purchase"] or not row["household_item"]]
    with_negatives = [g for g in lists_of(leaking) if len(g) > 1]
    assert "household_item" in telling([row for group in with_negatives for row in group])


def test_the_future_does_not_change_the_past(prepare, chance):
    sales, products = chance
    now = sales[1200].time
    whole, _ = make(prepare, sales, products, until=sales[1000].time)
    early, _ = make(prepare, [s for s in sales if s.time < now], products, until=sales[1000].time)
    assert early == [row for row in whole if row["time"] < now]
    assert early


def test_counts_are_those_of_a_slow_recount_over_strictly_earlier_sales(prepare, chance):
    sales, products = chance
    rows, _ = make(prepare, sales, products)
    for row in random.Random(1).sample(rows, 60):
        household = next(s.household for s in sales if s.basket == row["list_id"].split("-")[0])
        earlier = [s for s in sales if s.time < row["time"]]
        same = [s for s in earlier if s.product == row["product_id"]]
        assert row["item_sales"] == len(same) > 0
        assert row["household_item"] == sum(s.household == household for s in same)
        assert row["price"] == pytest.approx(sum(s.price for s in same) / len(same), abs=1e-4)
        days = (row["time"] - same[-1].time) / 86400
        assert row["days_since_sale"] == pytest.approx(days, abs=1e-3)


def test_purchases_of_one_moment_do_not_see_each_other(prepare):
    product = prepare.Product("FOOD", "TEA", "t", "b", "m")
    products = {f"p{i}": product for i in range(12)}
    before = [prepare.Sale(float(i), f"b{i}", f"p{i}", "h", 1.0) for i in range(12)]
    together = [prepare.Sale(50.0, basket, "p3", basket, 1.0) for basket in ("x", "y")]
    rows, counts = make(prepare, [*before, *together], products)
    positives = [row for row in rows if row["purchase"]]
    assert [(row["list_id"], row["item_sales"]) for row in positives] == [("x-p3", 1), ("y-p3", 1)]
    assert counts["left out: not sold before"] == 12


def test_negatives_never_come_from_the_same_basket(prepare):
    product = prepare.Product("FOOD", "TEA", "t", "b", "m")
    products = {f"p{i:02}": product for i in range(12)}
    before = [prepare.Sale(float(i), f"b{i}", p, "h", 1.0) for i, p in enumerate(products)]
    basket = [prepare.Sale(50.0, "x", p, "h", 1.0) for p in ("p01", "p02")]
    rows, _ = make(prepare, [*before, *basket], products)
    first = [row["product_id"] for row in rows if row["list_id"] == "x-p01"]
    assert sorted(first) == ["p00", "p01", *(f"p{i:02}" for i in range(3, 12))]


def test_what_is_first_sold_after_the_training_share_is_no_candidate(prepare):
    product = prepare.Product("FOOD", "TEA", "t", "b", "m")
    products = {f"p{i:02}": product for i in range(13)}
    sales = [prepare.Sale(float(i), f"b{i}", f"p{i:02}", "h", 1.0) for i in range(12)]
    late = [
        prepare.Sale(t, f"l{t}", p, "h", 1.0) for t, p in [(60, "p12"), (70, "p12"), (80, "p05")]
    ]
    rows, _ = make(prepare, [*sales, *late], products, until=50.0)
    assert {row["list_id"] for row in rows} == {"l80-p05"}
    assert "p12" not in {row["product_id"] for row in rows}


def test_the_same_seed_gives_the_same_rows_and_the_positive_has_no_place_of_its_own(
    prepare, chance
):
    rows, _ = make(prepare, *chance, negatives=9)
    assert rows == make(prepare, *chance, negatives=9)[0]
    assert rows != make(prepare, *chance, negatives=9, seed=1)[0]
    groups = lists_of(rows)
    positions = Counter([row["purchase"] for row in group].index(1) for group in groups)
    # Ten places, each with a tenth of about 2,480 lists: 248 with a deviation of 15.
    assert set(positions) == set(range(10))
    assert all(abs(count - len(groups) / 10) < 75 for count in positions.values())


def test_a_slice_of_the_real_files_fits_the_schema(
    prepare, real_data, repository, tmp_path, monkeypatch
):
    folder = real_data / "complete_journey"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    for name in ("products.csv.gz", "demographics.csv.gz"):
        shutil.copy(folder / name, tmp_path)
    purchases = sorted(
        prepare.read_csv(folder / "transactions.csv.gz"),
        key=lambda row: row["transaction_timestamp"],
    )
    logs.write_csv(tmp_path / "transactions.csv.gz", purchases[:12000])
    out = tmp_path / "out"
    monkeypatch.setattr(
        sys, "argv", ["prepare.py", "--data", str(tmp_path), "--out", str(out), "--train-share=1"]
    )
    prepare.main()
    schema = FeatureSchema.load(repository / "experiments/datasets/complete_journey/schema.yaml")
    groups = lists_of(list(prepare.read_csv(out / "rows.csv.gz")))
    assert len({group[0]["list_id"] for group in groups}) == len(groups) > 1000
    assert max(map(len, groups)) == 26
    for group in groups[:200]:
        parsed = [typed_row(schema, row) for row in group]
        assert 10 <= len(parsed) <= 26
        assert sum(row.example["purchase"] for row in parsed) == 1
        assert all(row.context == parsed[0].context for row in parsed)
        assert len({row.example["product_id"] for row in parsed}) == len(parsed)


def test_a_missing_file_is_refused_in_one_line(prepare, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        sys, "argv", ["prepare.py", "--data", str(tmp_path), "--out", str(tmp_path)]
    )
    with pytest.raises(SystemExit) as stopped:
        prepare.main()
    assert stopped.value.code == 2
    assert f"no file {tmp_path / 'products.csv.gz'}" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_real_files_give_the_documented_counts(
    prepare, real_data, tmp_path, monkeypatch, capsys
):
    folder = real_data / "complete_journey"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    lists, others_of = prepare.lists, []

    def counted(*arguments):
        for sale, others in lists(*arguments):
            others_of.append(len(others))
            yield sale, others

    monkeypatch.setattr(prepare, "lists", counted)
    # With one negative a list, which is a 13th of the rows.
    words = ["prepare.py", "--data", str(folder), "--out", str(tmp_path), "--negatives", "1"]
    monkeypatch.setattr(sys, "argv", words)
    prepare.main()
    printed = " ".join(capsys.readouterr().out.split())
    for count in (
        "75,000 rows read",
        "99,946 rows written",
        "49,973 lists",
        "32,881 lists within --train-share",
    ):
        assert count in printed
    assert sum(1 + min(others, 25) for others in others_of) == 1_249_123
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv.gz"]
