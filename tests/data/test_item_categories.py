"""The category of a list from its items: alike in `build`, frames, requests and exported graphs."""

import numpy as np
import pandas as pd
import pytest

from tests.beam import logs
from tfr_moe._compat import tf
from tfr_moe.data.frame_tables import ItemCategories
from tfr_moe.data.frames import parse, training_data
from tfr_moe.data.lists import group
from tfr_moe.elwc.values import decode_list
from tfr_moe.schema import FeatureSchema
from tfr_moe.serving.client.request import RequestEncoder
from tfr_moe.serving.export.parsing import RequestParser
from tfr_moe.tables.arrow import to_table
from tfr_moe.utils.io import read_json

ID = {"scope": "example", "kind": "categorical"}
TREE = {"child": "item.sub", "parent": "item.top", "from": "majority"}
DESCRIBED = {
    "list_id": "session",
    "labels": ["purchase"],
    "position": "position",
    "hierarchy": TREE,
    "features": [
        {"name": "age", "scope": "context", "kind": "numeric"},
        {"name": "top", **ID, "hash_buckets": 50},
        {"name": "sub", **ID, "min_count": 2},
        {"name": "price", "scope": "example", "kind": "numeric"},
    ],
}
# Categories by list, and what the list gets.
LISTS = {
    "a": (["A>x", "A>x", "B>x"], "A>x"),
    "b": (["B>x", "A>y", "A>y", "B>x"], "B>x"),  # a draw: the first one
    "c": (["A>", "B>z", ">"], "B>z"),
    "d": (["A>", ">"], ">"),
}
NO_MAJORITY = {"b", "d"}


def rows_of(names, repeat=1):
    return [
        {
            "session": f"{name}{number}",
            "position": position,
            "purchase": int(position == 2),
            "age": 30,
            "top": pair.split(">")[0],
            "sub": pair.split(">")[1],
            "price": position,
        }
        for number in range(repeat)
        for name in names
        for position, pair in enumerate(LISTS[name][0], start=1)
    ]


def schema():
    return FeatureSchema.model_validate(DESCRIBED)


def test_the_schema_adds_the_categories_of_lists_and_reads_itself_back(tmp_path):
    made = schema()
    assert made.hierarchy.child == "list_sub" and made.item_categories == ("top", "sub")
    assert made.feature("list_top").hash_buckets == 50
    assert made.feature("list_sub").min_count == 2
    assert [f.name for f in made.log_features] == ["age", "top", "sub", "price"]
    made.save(tmp_path / "schema.json")
    assert FeatureSchema.load(tmp_path / "schema.json") == made
    for tree, says in (
        ({**TREE, "child": "sub"}, "expected item.NAME, got 'sub'"),
        ({**TREE, "child": "item.age"}, "must be a categorical item feature, got 'item.age'"),
        ({**TREE, "from": "clicks"}, "from"),
    ):
        (tmp_path / "s.yaml").write_text(str({**DESCRIBED, "hierarchy": tree}))
        with pytest.raises(match="hierarchy.*" + says.replace(".", "[.]")):
            FeatureSchema.load(tmp_path / "s.yaml")


def test_a_build_and_a_frame_agree(tmp_path):
    rows = rows_of(LISTS, repeat=8)
    path = logs.write_csv(tmp_path / "log.csv", rows[::-1])
    manifest, folder = logs.run(
        tmp_path, path, schema={**DESCRIBED, "time": None}, test_fraction=0.0
    )
    note = "lists in which no category has the majority; they get the most frequent one"
    assert manifest["noted"] == {note: 16}
    stored = FeatureSchema.load(folder / "schema.json")
    for record in logs.records(folder):
        context, items = decode_list(stored, record)
        pairs = [f"{item['top']}>{item['sub']}" for item in items]
        name = next(name for name, (given, _) in LISTS.items() if given == pairs)
        assert f"{context['list_top']}>{context['list_sub']}" == LISTS[name][1]
    lines = []
    frame = training_data(pd.DataFrame(rows), None, schema(), tmp_path / "r", log=lines.append)
    assert sum(int(line.split()[0]) for line in lines) == 16
    assert frame.tables().statistics == read_json(folder / "statistics.json")
    words = (folder / "vocabulary" / "list_sub.txt").read_text().splitlines()
    assert frame.tables().vocabularies["list_sub"] == words
    assert set(words) == {"A > x", "B > x", "B > z"}


def test_requests_get_the_category_of_training():
    table = to_table(pd.DataFrame(rows_of(LISTS)))
    parts = {"all": group(table, schema())}
    split = parse(table, schema(), parts)["all"]
    ItemCategories(schema(), split).add(None, training=True)
    encode = RequestEncoder(schema()).encode
    by_list = {name: rows_of([name]) for name in LISTS}
    requests = [
        encode({"age": 30}, [{k: row[k] for k in ("top", "sub", "price")} for row in rows])
        for rows in by_list.values()
    ]
    served = RequestParser(schema()).lists(tf.constant(requests))
    for role, column in enumerate(("list_top", "list_sub")):
        trained = split.context[column]
        expected = [pair.split(">")[role].encode() for _, pair in LISTS.values()]
        assert trained.words[trained.codes[:, 0]].tolist() == expected
        assert served[column].numpy()[:, 0].tolist() == expected
    request = encode({"age": 30, "list_top": "B", "list_sub": "z"}, [{"top": "A", "sub": "x"}])
    actual = RequestParser(schema()).lists(tf.constant([request]))
    assert actual["list_sub"].numpy().tolist() == [[b"z"]]


def test_a_request_without_items_has_no_category():
    request = RequestEncoder(schema()).encode({"age": 30}, [])
    served = RequestParser(schema()).lists(tf.constant([request]))
    assert served["list_sub"].numpy().tolist() == [[b""]]


def test_categories_of_items_are_found_in_a_log():
    rows = pd.DataFrame(
        {
            "q": np.repeat(np.arange(60), 4),
            "click": np.tile([0, 1, 0, 0], 60),
            "category_2": [f"c{i % 6}" for i in range(240)],
            "category_1": [f"p{i % 6 // 3}" for i in range(240)],
            "price": np.arange(240) % 7.0,
        }
    )
    made = FeatureSchema.infer(rows, list_id="q", label="click")
    assert made.item_categories == ("category_1", "category_2")
    tree = {"child": "item.category_2", "parent": "item.category_1"}
    assert FeatureSchema.infer(rows, list_id="q", label="click", hierarchy=tree) == made
