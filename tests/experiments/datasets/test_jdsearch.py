from collections import Counter

import pytest

from experiments.datasets.jdsearch import HEADER, PRODUCT
from tests.beam.sourcing import rows_of
from tfr_moe.beam import BuildOptions, build
from tfr_moe.errors import UserError

PRODUCTS = {
    "1": ("t1", "t2"),
    "2": ("t1", "t2"),
    "3": ("t1", "t9"),
    "4": ("t8", "t7"),
    "5": ("t8", "t6"),
}
SEARCHES = [
    # query, shown, labels, history: queries, products, types, pauses
    "7\x188\t4_1_2_3_99\t3.0_0.0_0.0_1.0_0.0\t-1_7\t2_5\tORD_CLICK\t0_86400_172800",
    "9\t5\t0.0\t\t\t\t0",
]


def product(wid, top, sub):
    fields = dict.fromkeys(PRODUCT, "x") | {"wid": wid, "name": f"7\x18{wid}"}
    fields |= {"cate_id_1": top, "cate_id_2": sub, "brand_id": f"b{int(wid) % 2}", "shop_id": "s"}
    return "\t".join(fields.values())


@pytest.fixture
def given(tmp_path):
    return written(tmp_path, SEARCHES)


def written(folder, searches):
    rows = [product(wid, *path) for wid, path in PRODUCTS.items()]
    for name, header, texts in (
        ("user_behavior_data", HEADER, searches),
        ("product_meta_data", PRODUCT, rows),
    ):
        (folder / f"{name}.txt").write_text("\n".join(["\t".join(header), *texts]) + "\n")
    return folder / "user_behavior_data.txt"


def first(tmp_path, path, *settings, schema=None):
    rows, _, _ = rows_of(tmp_path, "jdsearch", path, schema, *settings)
    return rows, {row.values["wid"]: row.values for row in rows if row.line == 2}


def test_a_line_is_a_list_of_what_the_search_showed(tmp_path, given):
    rows, of_search = first(tmp_path, given)
    assert Counter(row.values["search"] for row in rows) == {
        "user_behavior_data.txt-2": 5,
        "user_behavior_data.txt-3": 1,
    }
    assert {wid: float(row["label"]) for wid, row in of_search.items()} == {
        "4": 3.0,
        "1": 0.0,
        "2": 0.0,
        "3": 1.0,
        "99": 0.0,
    }
    assert of_search["1"]["query_words"] == ["7", "8"]
    assert (of_search["1"]["words_in_name"], of_search["99"]["words_in_name"]) == (0.5, 0.0)
    assert of_search["99"]["cate_id_1"] is None


def test_the_query_has_the_category_of_most_shown_products_from_the_top(tmp_path, given):
    _, of_search = first(tmp_path, given)
    # Three of four known products are t1, and of these two are t2.
    assert {(row["query_cate_id_1"], row["query_cate_id_2"]) for row in of_search.values()} == {
        ("t1", "t2")
    }


def test_the_past_is_the_user_s_own_and_lies_before_the_search(tmp_path, given):
    rows, of_search = first(tmp_path, given)
    one = of_search["1"]
    assert (one["user_events"], one["user_orders"], one["days_since_event"]) == (2, 1, 2.0)
    assert one["history"] == ["2", "5"]
    assert [of_search[wid]["user_wid"] for wid in "1234"] == [0, 1, 0, 0]
    assert [of_search[wid]["user_cate_1"] for wid in "1234"] == [1, 1, 1, 1]
    assert [of_search[wid]["user_brand"] for wid in "1234"] == [1, 1, 1, 1]
    (other,) = (row.values for row in rows if row.line == 3)
    assert (other["user_events"], other["history"], other["days_since_event"]) == (0, [], None)


def test_candidates_do_not_keep_the_order_that_puts_the_chosen_first(tmp_path):
    wids = "_".join(map(str, range(10, 40)))
    labels = "_".join(["1.0"] * 3 + ["0.0"] * 27)
    lines = [f"7\t{wids}\t{labels}\t\t\t\t0"] * 40
    rows, _ = first(tmp_path, written(tmp_path, lines))
    positions = [row.order for row in rows if row.values["label"] == "1.0"]
    assert len(positions) == 120
    # 120 places of 0 ... 29: mean 14.5 with a deviation of 0.8.
    assert abs(sum(positions) / 120 - 14.5) < 4
    again, _ = first(tmp_path, tmp_path / "user_behavior_data.txt")
    other, _ = first(tmp_path, tmp_path / "user_behavior_data.txt", "seed=1")
    assert rows == again != other


def test_lines_that_cant_be_taken_apart_are_rejected_with_place_and_reason(tmp_path):
    lines = [
        *SEARCHES,
        "7\t1_2\t0.0\t\t\t\t0",
        "7\t1\t0.0\t-1\t2\tORD\t0",
        "7\t1\t0.0\t-1\t2\tSOLD\t0_1",
        "7\t1\t0.0\t-1\t2\tORD\t0_-1",
        "7\t1",
        "7\t1\thigh\t-1\t2\tORD\t0_1",
    ]
    options = BuildOptions(
        "jdsearch",
        str(written(tmp_path, lines)),
        None,
        tmp_path / "data",
        seed=3,
        max_lost=0.5,
    )
    manifest = build(options)
    assert manifest["rows"] == {"read": 12, "written": 6, "rejected": 6, "cut": 0}
    assert sorted(manifest["rejects"]) == [
        "column 'label': expected a number",
        "expected 7 fields",
        "has 2 products and 1 labels",
        "has a history of 1 queries, 1 products, 1 types and 1 times, which must be one more",
        "history time must be whole seconds >= 0",
        "history type must be one of CLICK, CART, ORD, FLW",
    ]


@pytest.mark.parametrize(
    "settings, message",
    [
        (["products=nowhere.txt"], "products nowhere.txt: no file matches"),
        (["history_features=FEATURES"], "feature 'n': by must begin with user"),
    ],
)
def test_what_cant_work_is_refused(tmp_path, given, settings, message):
    (tmp_path / "features.yaml").write_text("- {name: n, kind: count, by: wid}")
    settings = [text.replace("FEATURES", str(tmp_path / "features.yaml")) for text in settings]
    with pytest.raises(UserError, match=message):
        first(tmp_path, given, *settings)
    feature = {"name": "colour", "scope": "example", "kind": "categorical"}
    schema = {"list_id": "search", "labels": ["label"], "features": [feature]}
    with pytest.raises(UserError, match="unknown column 'colour'; available: brand_history, "):
        first(tmp_path, given, schema=schema)
    given.write_text("a\tb\n")
    with pytest.raises(UserError, match=r"line 1: expected 7 fields \(query, .*\), got 2"):
        first(tmp_path, given)


def test_the_real_sample_has_the_documented_counts(tmp_path, real_data):
    folder = real_data / "jdsearch"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    path = str(folder / "user_behavior_data_sample.txt")
    manifest = build(BuildOptions("jdsearch", path, None, tmp_path / "data", seed=5))
    assert manifest["rows"] == {"read": 262, "written": 262, "rejected": 0, "cut": 0}
    assert manifest["list_length"] == {"min": 83, "mean": pytest.approx(262 / 3), "max": 90}
    assert manifest["source_counts"]["products"] == {"read": 409, "kept": 409}
    assert sum(split["positives"] for split in manifest["splits"].values()) == 5
