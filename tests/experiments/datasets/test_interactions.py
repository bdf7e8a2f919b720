import csv
import gzip
import itertools
import json
import random
from bisect import bisect_right

import pytest
import yaml

from experiments.datasets.interactions import history_features, negative_sampling
from tests.beam import logs
from tests.beam.sourcing import rows_of
from tfr_moe.beam import BuildOptions, build
from tfr_moe.errors import UserError

DAY = 86400
SCHEMA = {
    "list_id": "list",
    "time": "time",
    "labels": ["bought"],
    "features": [
        {"name": "top", "scope": "context", "kind": "categorical"},
        {"name": "user_events", "scope": "context", "kind": "numeric"},
        {"name": "recent", "scope": "context", "kind": "categorical_list", "max_length": 3},
        {"name": "item", "scope": "example", "kind": "categorical"},
        {"name": "sub", "scope": "example", "kind": "categorical"},
        {"name": "item_events", "scope": "example", "kind": "numeric"},
        {"name": "item_paid", "scope": "example", "kind": "numeric", "default": 0.0},
        {"name": "item_days", "scope": "example", "kind": "numeric", "default": 99.0},
        {"name": "user_brand", "scope": "example", "kind": "numeric"},
        {"name": "user_item", "scope": "example", "kind": "numeric"},
    ],
}
PAST = [
    {"name": "item_events", "kind": "count", "by": "item"},
    {"name": "item_paid", "kind": "mean", "by": "item", "of": "paid"},
    {"name": "item_days", "kind": "days_since", "by": "item"},
    {"name": "user_events", "kind": "count", "by": "user"},
    {"name": "user_brand", "kind": "count", "by": ["user", "brand"]},
    {"name": "user_item", "kind": "count", "by": ["user", "item"]},
    {"name": "recent", "kind": "history", "by": "user", "of": "item", "length": 3},
]
COUNTED = ("item_events", "item_paid", "item_days", "user_brand", "user_item")


def item_rows(number=40):
    """Items i0, i1, ...: two top categories with two sub-categories each, three brands."""
    return [
        {"item": f"i{k}", "top": f"t{k % 2}", "sub": f"s{k % 4}", "brand": f"b{k % 3}"}
        for k in range(number)
    ]


def chance_events(number=1200, items=40, users=100, seed=5):
    """A world without taste: anybody buys anything at any time for a price of chance."""
    dice = random.Random(seed)
    return [
        {
            "user": f"u{dice.randrange(users)}",
            "item": f"i{dice.randrange(items)}",
            "time": n * DAY // 10,
            "paid": round(dice.uniform(1, 3), 3),
        }
        for n in range(number)
    ]


def settings(tmp_path, table=None, **options):
    """The item table, the past and what else; gives the `key=value` texts."""
    logs.write_csv(tmp_path / "items.csv", table or item_rows())
    (tmp_path / "features.yaml").write_text(yaml.safe_dump(PAST))
    given = {
        "items": tmp_path / "items.csv",
        "user": "user",
        "item": "item",
        "category": "top,sub",
        "history_features": tmp_path / "features.yaml",
        **options,
    }
    return tuple(f"{key}={value}" for key, value in given.items())


def made(tmp_path, events, schema=SCHEMA, table=None, **options):
    """(lists, each a list of rows; counts; rejects)."""
    path = logs.write_csv(tmp_path / "events.csv", events)
    given = settings(tmp_path, table, **options)
    rows, counts, rejects = rows_of(tmp_path, "interactions", path, schema, *given)
    values = [row.values for row in rows]
    groups = itertools.groupby(values, key=lambda row: row["list"])
    return [list(group) for _, group in groups], counts, rejects


def outcomes(counts, thing="events"):
    return {key[2]: count for key, count in counts.items() if key[:2] == ("source", thing)}


def telling(lists):
    """Features that alone tell the positive: AUC within lists off 0.5 by over 0.04."""
    result = set()
    for name in COUNTED:
        wins, pairs = 0.0, 0
        for rows in lists:
            (positive,) = (number(row[name]) for row in rows if row["bought"])
            others = [number(row[name]) for row in rows if not row["bought"]]
            wins += sum(1.0 if positive > x else 0.5 * (positive == x) for x in others)
            pairs += len(others)
        if abs(wins / pairs - 0.5) > 0.04:
            result.add(name)
    return result


def number(value):
    return -1.0 if value is None else value


def test_a_list_is_one_positive_and_other_items_of_its_top_category(tmp_path):
    lists, counts, rejects = made(tmp_path, chance_events(500), negatives=6)
    actual = outcomes(counts)
    assert actual["read"] == 500 == sum(n for key, n in actual.items() if key != "read")
    assert len(lists) == actual["became a list"] > 200
    assert rejects == [] and outcomes(counts, "items") == {"read": 40, "kept": 40}
    events = chance_events(500)
    had = {
        user: {e["item"] for e in events if e["user"] == user}
        for user in {e["user"] for e in events}
    }
    for rows in lists:
        (positive,) = (row for row in rows if row["bought"])
        assert positive["list"] == f"{positive['user']}-{positive['time']:.0f}-{positive['item']}"
        assert {row["top"] for row in rows} == {positive["top"]}
        assert 2 <= len(rows) == len({row["item"] for row in rows}) <= 7
        assert not had[positive["user"]] & {row["item"] for row in rows if not row["bought"]}


def test_the_shared_level_is_by_option(tmp_path):
    lists, _, _ = made(tmp_path, chance_events(600), level=2)
    assert lists and all(len({row["sub"] for row in rows}) == 1 for rows in lists)


def test_every_item_of_a_list_had_an_event_in_an_earlier_period_and_training(tmp_path):
    late = [{**e, "item": f"i{40 + n % 6}"} for n, e in enumerate(chance_events(100, seed=6))]
    events = chance_events(200) + [{**e, "time": e["time"] + 20 * DAY} for e in late]
    lists, _, _ = made(tmp_path, events, table=item_rows(46), repeats=True, negatives=5)
    first = {}
    for event in events:
        first[event["item"]] = min(event["time"], first.get(event["item"], event["time"]))
    for rows in lists:
        start = rows[0]["time"] // DAY * DAY
        assert all(first[row["item"]] < start for row in rows)
    # i40 ... i45 are new after two thirds of the events: within the first 0.7 some may be seen.
    strict, _, _ = made(tmp_path, events, table=item_rows(46), repeats=True, candidates_share=0.6)
    assert not {f"i{k}" for k in range(40, 46)} & {row["item"] for rows in strict for row in rows}
    assert strict


@pytest.fixture(scope="module")
def chance_lists(tmp_path_factory):
    """Lists of the world without taste where repeats are positives: what tells one is a leak."""
    folder = tmp_path_factory.mktemp("chance")
    return made(folder, chance_events(), negatives=8, exponent=0, repeats=True)[0]


def test_no_feature_predicts_the_positive_of_random_events(chance_lists):
    assert len(chance_lists) > 1000
    assert telling(chance_lists) == set()


@pytest.mark.slow
def test_no_feature_predicts_the_first_event_of_a_user_with_an_item(tmp_path):
    lists, _, _ = made(tmp_path, chance_events(), negatives=8, exponent=0)
    assert len(lists) > 700
    assert telling(lists) == set()


def test_a_planted_leak_of_the_event_itself_is_noticed(tmp_path, monkeypatch):
    def sees_the_moment(times, time, low=0, high=None):
        return bisect_right(times, time, low, len(times) if high is None else high)

    monkeypatch.setattr(history_features, "bisect_left", sees_the_moment)
    lists, _, _ = made(tmp_path, chance_events(500), negatives=8, exponent=0, repeats=True)
    assert {"item_days", "user_brand"} <= telling(lists)


@pytest.mark.slow
def test_planted_negatives_that_were_never_a_positive_are_noticed(tmp_path, monkeypatch):
    whole = negative_sampling.CandidateTable.weights

    def anything(self, period, exponent):
        return 1.0 + 0.0 * whole(self, period, exponent)

    monkeypatch.setattr(negative_sampling.CandidateTable, "weights", anything)
    # The second half of the items begins to sell in the second half of the time.
    events = chance_events()
    events = [
        {**e, "item": f"i{int(e['item'][1:]) // 2}"} if n < 600 else e for n, e in enumerate(events)
    ]
    lists, _, _ = made(tmp_path, events, negatives=8, repeats=True, candidates_share=1.0)
    assert {"item_events", "item_days"} <= telling(lists)


def test_a_planted_sparing_of_what_the_user_had_is_noticed(chance_lists):
    leaking = [[r for r in rows if r["bought"] or not r["user_item"]] for rows in chance_lists]
    assert telling([rows for rows in leaking if len(rows) > 1]) == {"user_item"}


def test_the_future_does_not_change_the_past(tmp_path):
    events, now = chance_events(400), 250 * DAY // 10
    options = {"repeats": True, "candidates_share": 1.0}
    whole, _, _ = made(tmp_path, events, **options)
    early, _, _ = made(tmp_path, [e for e in events if e["time"] < now], **options)
    assert early == [rows for rows in whole if rows[0]["time"] < now]
    assert early


def test_features_equal_a_slow_pandas_recount(tmp_path):
    pandas = pytest.importorskip("pandas")
    events = chance_events(500)
    frame = pandas.DataFrame(events).merge(pandas.DataFrame(item_rows()), on="item")
    lists, _, _ = made(tmp_path, events, negatives=4)
    rows = [row for rows in lists for row in rows]
    for row in random.Random(1).sample(rows, 80):
        before = frame[frame.time < row["time"]].sort_values("time")
        same = before[before["item"] == row["item"]]
        mine = before[before.user == row["user"]]
        assert row["item_events"] == len(same) > 0
        assert row["item_paid"] == pytest.approx(same.paid.mean())
        assert row["item_days"] == pytest.approx((row["time"] - same.time.max()) / DAY)
        assert row["user_events"] == len(mine)
        brand = item_rows()[int(row["item"][1:])]["brand"]
        assert row["user_brand"] == (mine.brand == brand).sum()
        assert row["recent"] == mine["item"].tolist()[-3:]


def test_events_of_one_moment_do_not_see_each_other(tmp_path):
    events = [{"user": f"u{k}", "item": f"i{k}", "time": k, "paid": 1} for k in range(12)]
    events += [{"user": "x", "item": item, "time": 9 * DAY, "paid": 1} for item in ("i2", "i4")]
    lists, counts, _ = made(tmp_path, events, candidates_share=1.0)
    assert [rows[0]["list"] for rows in lists] == [f"x-{9 * DAY}-i2", f"x-{9 * DAY}-i4"]
    for rows in lists:
        assert {(row["user_events"], row["item_events"]) for row in rows} == {(0, 1)}
        assert {"i2", "i4"} - {row["item"] for row in rows}
    assert outcomes(counts)["left out: item not seen before"] == 12


def test_what_cant_be_a_list_is_counted_by_its_reason(tmp_path):
    events = chance_events(400)
    events += [events[3], {**events[5], "paid": 9}, {**events[5], "time": 50 * DAY}]
    events += [{"user": "u1", "item": "unknown", "time": 1, "paid": 1}]
    events += [{"user": "", "item": "i1", "time": 1, "paid": 1}]
    events += [{"user": "u1", "item": "i1", "time": "soon", "paid": 1}]
    items = [*item_rows(), {**item_rows()[0], "brand": "other"}, item_rows()[1]]
    items += [{"item": "", "top": "t", "sub": "s", "brand": "b"}]
    _, counts, rejects = made(tmp_path, events, table=items)
    actual = outcomes(counts)
    assert actual["left out: duplicate"] == 2
    assert actual["left out: item without a category"] == 1
    assert actual["left out: the user had the item before"] >= 1
    assert actual["rejected"] == 2
    assert actual["read"] == len(events) == sum(n for key, n in actual.items() if key != "read")
    assert outcomes(counts, "items") == {
        "read": 43,
        "kept": 40,
        "duplicate": 1,
        "duplicate that differs": 1,
        "rejected": 1,
    }
    assert [(file, line, reason) for file, line, reason, _ in rejects] == [
        (0, 406, "column 'user': a value is required"),
        (0, 407, "column 'time': expected ISO 8601 time or Unix seconds, got 'soon'"),
        (1, 44, "column 'item': a value is required"),
    ]


def test_the_same_seed_gives_the_same_bytes_and_the_manifest_describes_the_draw(tmp_path):
    path = logs.write_csv(tmp_path / "events.csv", chance_events(250))
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump(SCHEMA))

    def data(out, seed):
        given = settings(tmp_path, negatives=5)
        options = BuildOptions(
            "interactions",
            str(path),
            tmp_path / "schema.yaml",
            tmp_path / out,
            settings=given,
            seed=seed,
        )
        return build(options), logs.tree(tmp_path / out)

    (manifest, one), (_, two), (_, other) = data("a", 0), data("b", 0), data("c", 1)
    assert one == two and one != other
    notes = json.loads((tmp_path / "a" / "manifest.json").read_text())["notes"]
    assert notes == manifest["notes"]
    assert notes["negatives"].startswith("sampled") and notes["negatives_per_list"] == 5
    assert notes["same_category"] == ["top"] and notes["seed"] == 0
    assert notes["never"] == "an item of the user"
    lists = sum(split["lists"] for split in manifest["splits"].values())
    assert manifest["source_counts"]["events"]["became a list"] == lists


def test_the_position_of_the_positive_is_random(chance_lists):
    lists = [rows for rows in chance_lists if len(rows) == 9]
    positions = [[row["bought"] for row in rows].index(1) for rows in lists]
    # A place has a ninth of some 1,100 lists: 122 with a deviation of 10.
    assert len(lists) > 900
    assert all(abs(positions.count(position) - len(lists) / 9) < 50 for position in range(9))


def feature(name, scope, kind="categorical", **rest):
    return {"name": name, "scope": scope, "kind": kind, **rest}


@pytest.mark.parametrize(
    "changes, options, message",
    [
        ({"position": "place"}, {}, "position 'place': sampled lists have no positions"),
        ({"labels": ["bought", "seen"]}, {}, "interactions have one label"),
        ({"time": "when"}, {}, "column 'when' is in no file and is not generated; available: "),
        (
            {"features": [feature("sub", "context")]},
            {},
            "feature 'sub' belongs to the item: as a context feature it would reveal the positive",
        ),
        (
            {"features": [feature("item_events", "context", "numeric")]},
            {},
            "feature 'item_events' belongs to the item",
        ),
        ({}, {"user": "who"}, "missing column 'who'"),
        ({}, {"category": "top,leaf"}, "missing column 'leaf'"),
        ({}, {"level": 3}, "level: must be at most 2, the number of category columns, got 3"),
        ({}, {"negatives": 0}, "negatives: Input should be greater than or equal to 1"),
        ({}, {"min_negatives": 30}, "min_negatives is 30, negatives 20"),
        ({}, {"colour": 1}, "source interactions has no such option; available: level, negatives"),
        ({}, {"items": "no-such-file.csv"}, "items no-such-file.csv: no file matches"),
    ],
)
def test_what_cant_work_is_rejected_in_one_line(tmp_path, changes, options, message):
    with pytest.raises(UserError) as caught:
        made(tmp_path, chance_events(20), schema={**SCHEMA, **changes}, **options)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_the_item_table_has_to_be_named(tmp_path):
    path = logs.write_csv(tmp_path / "events.csv", chance_events(20))
    with pytest.raises(UserError, match="source interactions: items: Field required"):
        rows_of(tmp_path, "interactions", path, SCHEMA)


@pytest.mark.slow
def test_real_purchases_all_have_an_outcome_and_no_leak(tmp_path, real_data):
    folder = real_data / "complete_journey"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    # Whole years of a ninth of the households.
    with gzip.open(folder / "transactions.csv.gz", "rt", encoding="utf-8", newline="") as file:
        purchases = list(csv.DictReader(file))
    assert len(purchases) == 75000
    sample = [row for row in purchases if int(row["household_id"]) % 9 == 0]
    (tmp_path / "features.yaml").write_text(
        yaml.safe_dump([{"name": "item_events", "kind": "count", "by": "product_id"}])
    )
    schema = {
        "list_id": "list",
        "time": "transaction_timestamp",
        "labels": ["bought"],
        "hierarchy": {"child": "product_category", "parent": "department"},
        "features": [
            feature("department", "context"),
            feature("product_category", "context"),
            feature("item_events", "example", "numeric"),
        ],
    }
    rows, counts, rejects = rows_of(
        tmp_path,
        "interactions",
        logs.write_csv(tmp_path / "transactions.csv", sample),
        schema,
        f"items={folder}/products.csv.gz",
        "user=household_id",
        "item=product_id",
        "time=transaction_timestamp",
        "category=department,product_category",
        "level=2",
        "repeats=true",
        "negatives=1",
        f"history_features={tmp_path}/features.yaml",
    )
    actual = outcomes(counts)
    assert actual["read"] == len(sample) == sum(n for key, n in actual.items() if key != "read")
    assert outcomes(counts, "items") == {"read": 92331, "kept": 92331} and rejects == []
    assert actual["left out: item without a category"] == 39
    assert 3_000 < actual["became a list"] < 3_100
    # Everything that stands in a list was sold before, by the counts that strictly precede it.
    assert min(row.values["item_events"] for row in rows) >= 1
    shelves = {}
    for row in rows:
        shelf = (row.values["department"], row.values["product_category"])
        assert shelves.setdefault(row.values["list"], shelf) == shelf
