"""`from: clicked_in_training`: alike in `build`, frames, requests; never a list's own clicks."""

import numpy as np
import pandas as pd
import pytest
import yaml

from tests.beam import logs
from tfr_moe._compat import tf
from tfr_moe.beam import BuildOptions, build
from tfr_moe.data import DataFolder
from tfr_moe.data.frames import scoring_data, training_data
from tfr_moe.elwc.values import decode_list
from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema, query_categories
from tfr_moe.serving.client.request import RequestEncoder
from tfr_moe.serving.export.parsing import RequestParser
from tfr_moe.utils.io import read_json

ID = {"scope": "example", "kind": "categorical"}
DESCRIBED = {
    "list_id": "session",
    "labels": ["purchase"],
    "hierarchy": {
        "child": "item.sub",
        "parent": "item.top",
        "from": "clicked_in_training",
        "query": "query",
    },
    "features": [
        {"name": "query", "scope": "context", "kind": "categorical", "hash_buckets": 9},
        {"name": "top", **ID},
        {"name": "sub", **ID},
        {"name": "price", "scope": "example", "kind": "numeric"},
    ],
    "time": None,
    "position": None,
}
# Split, query, items (* is clicked) and what the list gets. The clicks of boots are A>x 2, B>y 2.
LISTS = {
    "t1": ("train", "boots", ["A>x*", "A>x", "B>y"], "B>y"),  # of the others A>x 1, B>y 2
    "t2": ("train", "boots", ["A>x", "B>y*", "B>y*"], "A>x"),  # of the others A>x 2
    "t3": ("train", "boots", ["C>z", "C>z", "A>x*"], "B>y"),  # of the others A>x 1, B>y 2
    "t4": ("train", "hats", ["B>y*", "C>z", "C>z"], "C>z"),  # its own clicks alone: the majority
    "t5": ("train", "", ["A>x*", "C>z"], "A>x"),  # no query: the first
    "t6": ("train", "socks", ["A>x", "C>*", "C>"], "A>x"),  # clicked without a category
    "v1": ("validation", "boots", ["C>z", "C>z*"], "A>x"),  # a draw: the first by its text
    "v2": ("validation", "hats", ["A>x"], "B>y"),
    "s1": ("test", "gloves", ["A>x", "C>z", "C>z"], "C>z"),
    "s2": ("test", "boots", ["C>z*"], "A>x"),
}
TABLE = {"boots": ["A", "x"], "hats": ["B", "y"]}
NO_CLICKS = "lists without clicks of their query in training, which have the most frequent category"
NO_MAJORITY = "lists in which no category has the majority; they get the most frequent one"


def rows_of(*splits):
    return [
        {
            "session": name,
            "time": list(LISTS).index(name),
            "split": split,
            "query": query,
            "purchase": int(pair.endswith("*")),
            "top": pair.partition(">")[0],
            "sub": pair.partition(">")[2].rstrip("*"),
            "price": number,
        }
        for name, (split, query, pairs, _) in LISTS.items()
        for number, pair in enumerate(pairs)
        if split in splits
    ]


def schema():
    return FeatureSchema.model_validate(DESCRIBED)


def built(tmp_path, rows, **options):
    path = logs.write_csv(tmp_path / "log.csv", rows)
    return logs.run(tmp_path, path, **{"schema": DESCRIBED, **options})


def categories(folder):
    result = {}
    for record in logs.records(folder):
        context, items = decode_list(schema(), record)
        pairs = [f"{item['top']}>{item['sub']}" for item in items]
        name = next(
            name
            for name, (_, query, given, _) in LISTS.items()
            if ([pair.rstrip("*") for pair in given], query) == (pairs, context["query"])
        )
        result[name] = f"{context['list_top']}>{context['list_sub']}"
    return result


def expected(*splits):
    return {name: pair for name, (split, *_, pair) in LISTS.items() if split in splits}


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({}, {"split_column": "split"}),
        ({"time": "time"}, {"validation_fraction": 0.2, "test_fraction": 0.2}),
    ],
)
def test_a_list_gets_what_was_clicked_in_other_training_lists_of_its_query(
    tmp_path, changes, options
):
    rows = rows_of("train", "validation", "test")
    manifest, folder = built(tmp_path, rows, schema={**DESCRIBED, **changes}, **options)
    assert categories(folder) == expected("train", "validation", "test")
    assert read_json(folder / "query_categories.json") == TABLE
    assert "query_categories.json" in manifest["files"]
    # t4, t5, t6 and s1; t5 has no majority.
    assert manifest["noted"] == {NO_CLICKS: 4, NO_MAJORITY: 1}
    words = (folder / "vocabulary" / "list_sub.txt").read_text().splitlines()
    assert words == ["A > x", "B > y", "C > z"]  # 3, 2, 1 training lists


def test_a_frame_has_the_same(tmp_path):
    lines = []
    train, validation = (pd.DataFrame(rows_of(name)) for name in ("train", "validation"))
    data = training_data(train, validation, schema(), tmp_path / "run", log=lines.append)
    assert data.categories == {query: tuple(pair) for query, pair in TABLE.items()}
    assert [line for line in lines if "lists" in line] == [
        f"3 of 6 train {NO_CLICKS}",
        f"1 of 6 train {NO_MAJORITY}",
    ]
    frame, notes = pd.DataFrame(rows_of("test")), []
    test, lists = scoring_data(frame, schema(), "test", True, notes.append, data.categories)
    assert notes == [f"1 of 2 {NO_CLICKS}"]
    for splits in (data.splits, test.splits):
        for split, parsed in splits.items():
            parents, children = (
                [column.words[code].decode() for code in column.codes[:, 0]]
                for name in ("list_top", "list_sub")
                for column in [tf.nest.map_structure(lambda t: t.numpy(), parsed.context[name])]
            )
            names = [text.decode() for text in parsed.context["session"].numpy()[:, 0]]
            pairs = [f"{p}>{c}" for p, c in zip(parents, children, strict=True)]
            assert dict(zip(names, pairs, strict=True)) == expected(split)
    assert lists.list_ids == ["s1", "s2"]
    data.copy_description(tmp_path / "kept")
    assert query_categories(tmp_path / "kept", schema()) == data.categories


def test_requests_get_the_category_of_their_query():
    encode = RequestEncoder(schema()).encode
    requests = [
        encode({"query": query}, [{"top": "C", "sub": "z"}]) for query in ("boots", "new", "")
    ]
    requests.append(encode({"query": "hats", "list_top": "D", "list_sub": "w"}, [{"top": "C"}]))
    requests.append(encode({"query": "hats"}, [{"top": "C"}]))
    table = {query: tuple(pair) for query, pair in TABLE.items()}
    served = RequestParser(schema(), table).lists(tf.constant(requests))
    assert served["list_top"].numpy()[:, 0].tolist() == [b"A", b"C", b"C", b"D", b"B"]
    assert served["list_sub"].numpy()[:, 0].tolist() == [b"x", b"z", b"z", b"w", b"y"]
    none = RequestParser(schema(), {}).lists(tf.constant(requests))
    assert none["list_sub"].numpy()[:, 0].tolist() == [b"z", b"z", b"z", b"w", b""]


def test_lists_like_those_of_a_data_set_have_its_table(tmp_path):
    _, folder = built(tmp_path, rows_of("train", "validation"), split_column="split")
    path = logs.write_csv(tmp_path / "later.csv", rows_of("test"))
    later = tmp_path / "later"
    build(BuildOptions("search-logs", str(path), None, later, like=folder))
    assert categories(later) == expected("test")
    assert DataFolder(later).manifest["files"].keys() >= {"query_categories.json"}


def test_a_hierarchy_by_clicks_can_be_given_to_the_inference():
    rows = pd.DataFrame(rows_of("train") * 5)
    rows["session"] += np.repeat([f"-{i}" for i in range(5)], len(rows) // 5)
    made = FeatureSchema.infer(
        rows.drop(columns=["time", "split"]),
        list_id="session",
        label="purchase",
        hierarchy=DESCRIBED["hierarchy"],
        keep=["query"],
    )
    assert made.hierarchy == schema().hierarchy
    assert made.feature("query").scope == "context"


def test_days_and_missing_tables_are_rejected(tmp_path):
    with pytest.raises(UserError, match="append: hierarchy `from: clicked_in_training` counts"):
        built(tmp_path, rows_of("train"), out="days", append="2024-06-01", split="hash")
    assert not (tmp_path / "days" / "days").exists()
    with pytest.raises(UserError, match=r"query_categories\.json: is missing; build the data set"):
        query_categories(tmp_path, schema())


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"query": None}, "query: the feature of the query, .* only for it; got None"),
        ({"from": "majority"}, "query: the feature of the query, .* only for it; got 'query'"),
        ({"query": "top"}, "hierarchy.query must be a categorical context feature, got 'top'"),
        ({"query": "list_sub"}, "query: must not be a category, got 'list_sub'"),
        ({"from": "query_model"}, "'majority' or 'clicked_in_training'"),
    ],
)
def test_an_inconsistent_hierarchy_is_rejected(tmp_path, tree, message):
    path = tmp_path / "schema.yaml"
    tree = {**DESCRIBED["hierarchy"], **tree}
    path.write_text(yaml.safe_dump({**DESCRIBED, "hierarchy": tree}))
    with pytest.raises(match=message):
        FeatureSchema.load(path)
