import gzip
import itertools
import json
import random

import pytest

from experiments.datasets.amazon import category_path
from tests.beam.sourcing import rows_of
from tfr_moe.beam import BuildOptions, build
from tfr_moe.errors import UserError

DAY = 86400


def review(user, item, day, stars=5.0):
    return {"reviewerID": user, "asin": item, "unixReviewTime": day * DAY, "overall": stars}


REVIEWS = [
    review("u1", "a", 1, 4.0),
    review("u2", "b", 2, 1.0),
    review("u1", "c", 3, 5.0),
    review("u3", "d", 3),
    review("u1", "b", 5, 5.0),
    review("u2", "a", 6, 2.0),
]
META = [
    {
        "asin": "a",
        "title": "A",
        "brand": "X",
        "category": ["Toys &amp; Games", "Puzzles", "</span>"],
    },
    {
        "asin": "b",
        "title": "B",
        "brand": "Y",
        "category": ["Toys & Games", "Dolls", "Made of wood."],
    },
    {"asin": "c", "title": "<span class='x'>", "brand": "X", "category": ["Toys & Games"]},
    {"asin": "c", "title": "C", "brand": "", "category": []},
    {"asin": "d", "title": "D", "brand": "Z", "category": ["Toys &amp;amp; Games", "Puzzles"]},
    {
        "asin": "a",
        "title": "A",
        "brand": "X",
        "category": ["Toys &amp; Games", "Puzzles", "</span>"],
    },
]


def written(path, values, write=json.dumps):
    with gzip.open(path, "wt") as file:
        file.writelines(f"{write(value)}\n" for value in values)
    return path


@pytest.fixture
def given(tmp_path):
    written(tmp_path / "meta_Toys.json.gz", META)
    return written(tmp_path / "Toys_5.json.gz", REVIEWS)


def lists(tmp_path, path, *settings, schema=None):
    settings = (f"meta={tmp_path}/meta_*.json.gz", "candidates_share=1", *settings)
    rows, counts, rejects = rows_of(tmp_path, "amazon", path, schema, *settings)
    values = [row.values for row in rows]
    groups = itertools.groupby(values, key=lambda row: row["review"])
    return {name: {row["asin"]: row for row in group} for name, group in groups}, counts, rejects


def test_the_features_are_the_paper_s_over_earlier_reviews(tmp_path, given):
    actual, _, _ = lists(tmp_path, given)
    assert set(actual) == {f"u1-{5 * DAY}-b", f"u2-{6 * DAY}-a"}
    last = actual[f"u2-{6 * DAY}-a"]
    assert set(last) <= {"a", "c", "d"} and last["a"]["reviewed"] == 1
    a, c = last["a"], last["c"]
    assert a["top_category"] == c["top_category"] == "Toys & Games"
    assert (a["sub_category"], c["sub_category"]) == ("Puzzles", "Toys & Games")
    assert (a["title"], c["title"], c["brand"]) == ("A", "C", "X")
    assert a["asin_hist"] == ["b"] and a["brand_hist"] == ["Y"]
    assert [a[f"asin_overall_cnt_{n}"] for n in (1, 2, 3, 4, 5)] == [0, 0, 0, 1, 0]
    assert (a["asin_overall_cnt"], c["asin_overall_cnt_5"]) == (1, 1)
    assert [a[f"reviewer_overall_cnt_{n}"] for n in (1, 2, 3, 4, 5)] == [1, 0, 0, 0, 0]
    earlier = actual[f"u1-{5 * DAY}-b"]["b"]
    assert earlier["asin_hist"] == ["a", "c"] and earlier["brand_hist"] == ["X", "X"]
    assert (earlier["reviewer_overall_cnt"], earlier["asin_overall_cnt_1"]) == (2, 1)


def test_duplicate_metadata_are_joined_and_counted_and_names_clean_name(tmp_path, given):
    _, counts, rejects = lists(tmp_path, given)
    assert rejects == []
    assert counts["source", "items", "read"] == 6
    assert counts["source", "items", "duplicate"] == 2
    assert counts["source", "items", "kept"] == 4
    # Two rows of a with one name each, one of d.
    assert counts["noted", "category names cleaned"] == 3


def test_the_layout_of_2014_gives_the_same(tmp_path, given):
    new, _, _ = lists(tmp_path, given)
    old = [
        {
            **{k: v for k, v in row.items() if k != "category"},
            "categories": [row["category"], ["No"]],
        }
        for row in META
    ]
    written(tmp_path / "meta_Toys.json.gz", old, write=repr)
    assert lists(tmp_path, given)[0] == new


def test_lines_that_cant_be_read_are_rejected_with_their_place(tmp_path, given):
    with gzip.open(given, "at") as file:
        file.write("__import__('os')\n" + json.dumps({"asin": "a"}) + "\n")
    _, counts, rejects = lists(tmp_path, given)
    assert counts["source", "events", "rejected"] == 2
    assert [reject[1:3] for reject in rejects] == [
        (7, "neither a JSON object nor a Python literal of one"),
        (8, "column 'reviewerID': a value is required"),
    ]


@pytest.mark.parametrize(
    "settings, message",
    [
        ([], "source amazon: meta: Field required"),
        (
            ["meta=META", "level=3"],
            "level: must be at most 2, the number of category columns, got 3",
        ),
        (["meta=INPUT"], r"meta: .* holds reviews, expected metadata"),
    ],
)
def test_what_cant_work_is_refused(tmp_path, given, settings, message):
    settings = [
        text.replace("META", f"{tmp_path}/meta_Toys.json.gz").replace("INPUT", str(given))
        for text in settings
    ]
    with pytest.raises(UserError, match=message):
        rows_of(tmp_path, "amazon", given, None, *settings)


def test_a_file_of_something_else_is_refused(tmp_path, given):
    written(tmp_path / "other.json.gz", [{"asin": "a"}])
    with pytest.raises(UserError, match=r"input: .*, line 1: no 'reviewerID'; Amazon reviews"):
        lists(tmp_path, tmp_path / "other.json.gz")


def test_paths_that_are_no_list_are_nothing():
    assert category_path(None) == category_path("Toys") == category_path([]) == []


@pytest.fixture(scope="module")
def amazon_2018(real_data):
    folder = real_data / "amazon_2018"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    return folder


def read(path):
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


def test_real_files_give_the_documented_counts_and_pandas_features(tmp_path, amazon_2018):
    pandas = pytest.importorskip("pandas")
    name = "Magazine_Subscriptions"
    settings = (f"meta={amazon_2018}/meta_{name}.json.gz", "negatives=4")
    path = amazon_2018 / f"{name}_5.json.gz"
    rows, counts, rejects = rows_of(tmp_path, "amazon", path, None, *settings)
    outcomes = {key[2]: n for key, n in counts.items() if key[:2] == ("source", "events")}
    assert outcomes["read"] == 2375 and outcomes["left out: duplicate"] == 47
    assert outcomes["became a list"] > 800 and rejects == []
    items = {key[2]: n for key, n in counts.items() if key[:2] == ("source", "items")}
    assert items == {"read": 3385, "kept": 2320, "duplicate": 1065}
    frame = pandas.DataFrame(read(path)).drop_duplicates(["reviewerID", "asin", "unixReviewTime"])
    brands = {row["asin"]: row["brand"] for row in read(amazon_2018 / f"meta_{name}.json.gz")}
    assert {row.values["top_category"] for row in rows} == {"Magazine Subscriptions"}
    assert not any("&amp;" in (row.values["sub_category"] or "") for row in rows)
    for row in random.Random(0).sample([row.values for row in rows], 60):
        before = frame[frame.unixReviewTime < row["unixReviewTime"]]
        item = before[before.asin == row["asin"]]
        mine = before[before.reviewerID == row["reviewerID"]]
        mine = mine.sort_values("unixReviewTime", kind="stable")
        assert row["asin_overall_cnt"] == len(item) > 0
        assert row["reviewer_overall_cnt"] == len(mine)
        for stars in (1, 2, 3, 4, 5):
            assert row[f"asin_overall_cnt_{stars}"] == (item.overall == stars).sum()
            assert row[f"reviewer_overall_cnt_{stars}"] == (mine.overall == stars).sum()
        assert row["asin_hist"] == mine.asin.tolist()[-20:]
        known = [brands[asin] for asin in mine.asin if brands.get(asin)]
        assert row["brand_hist"] == known[-20:]
        assert row["title"] is None or "<" not in row["title"]


@pytest.mark.slow
def test_gift_cards_build_with_both_levels_shared(tmp_path, amazon_2018):
    manifest = build(
        BuildOptions(
            "amazon",
            str(amazon_2018 / "Gift_Cards_5.json.gz"),
            None,
            tmp_path / "data",
            settings=(f"meta={amazon_2018}/meta_Gift_Cards.json.gz", "level=2"),
        )
    )
    events, items = manifest["source_counts"]["events"], manifest["source_counts"]["items"]
    assert (events["read"], events["left out: duplicate"]) == (2972, 3)
    assert items == {"read": 1547, "kept": 1547}
    assert manifest["splits"]["train"]["lists"] > 500
    names = (tmp_path / "data" / "vocabulary" / "sub_category.txt").read_text().splitlines()
    assert set(names) <= {"Gift Cards > Gift Cards", "Gift Cards > Gift Card Accessories"}
