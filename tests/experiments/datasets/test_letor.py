import gzip
from dataclasses import replace

import pytest
import yaml

import experiments.datasets.letor  # noqa: F401 (registers the source)
from tests.beam import logs
from tests.beam.sourcing import rows_of
from tfr_moe.beam import BuildOptions, build
from tfr_moe.beam.sources import get_source, parse_options
from tfr_moe.errors import UserError

TEXT = """2 qid:10 1:0.5 3:-1.25 # docid = a
0 qid:10 2:NULL 3:nan
1 qid:11 1:3

0 qid:11 3:1e3
"""


def written(path, text=TEXT):
    path.write_text(text)
    return path


def values(tmp_path, path, *settings, schema=None):
    rows, _, _ = rows_of(tmp_path, "letor", path, schema, *settings)
    return rows


def test_lines_become_rows_with_what_is_not_named_0(tmp_path):
    rows = values(tmp_path, written(tmp_path / "a.txt"))
    assert [(row.line, row.values) for row in rows] == [
        (1, {"qid": "10", "relevance": "2", "features": [0.5, 0.0, -1.25]}),
        (2, {"qid": "10", "relevance": "0", "features": [0.0, 0.0, 0.0]}),
        (3, {"qid": "11", "relevance": "1", "features": [3.0, 0.0, 0.0]}),
        (5, {"qid": "11", "relevance": "0", "features": [0.0, 0.0, 1000.0]}),
    ]


def wide_schema(width):
    features = {"name": "features", "scope": "example", "kind": "numeric", "width": width}
    return {"list_id": "qid", "labels": ["relevance"], "features": [features]}


def test_a_given_schema_may_be_wider_than_the_file(tmp_path):
    rows = values(tmp_path, written(tmp_path / "a.txt"), schema=wide_schema(4))
    assert [row.values["features"] for row in rows[:2]] == [[0.5, 0.0, -1.25, 0.0], [0.0] * 4]


def test_a_given_schema_may_name_single_features(tmp_path):
    schema = {
        "list_id": "qid",
        "labels": ["relevance"],
        "features": [{"name": "f3", "scope": "example", "kind": "numeric"}],
    }
    rows = values(tmp_path, written(tmp_path / "a.txt"), schema=schema)
    assert [row.values["f3"] for row in rows] == [-1.25, 0.0, 0.0, 1000.0]
    schema["features"][0]["name"] = "price"
    with pytest.raises(UserError, match="unknown column 'price'; available: qid, rel"):
        values(tmp_path, tmp_path / "a.txt", schema=schema)


def test_sizes_of_the_queries_may_be_in_a_separate_file(tmp_path):
    with gzip.open(tmp_path / "rank.train.gz", "wt") as file:
        file.write("1 1:1\n0 1:2\nbad\n0 1:4\n")
    (tmp_path / "rank.train.query").write_text("1\n3\n")
    rows = values(tmp_path, tmp_path / "rank.train.gz")
    assert [row.error or row.values["qid"] for row in rows[:2]] == ["rank.train-1", "rank.train-2"]
    # A line that can't be read still is one of its query.
    assert rows[3].values["qid"] == "rank.train-2"


def test_lines_that_cant_be_parsed_carry_the_reason(tmp_path):
    text = TEXT + "1 qid:12 x:1\n1 qid:12 4:1\n1 qid:12 1:one\n1 qid:12 7\n1 1:1\n"
    path = written(tmp_path / "a.txt", text)
    rows = values(tmp_path, path, schema=wide_schema(3))
    assert [row.error for row in rows[4:8]] == [
        "expected a feature from 1 to 3, got 'x:1'",
        "expected a feature from 1 to 3, got '4:1'",
        "expected a number, got '1:one'",
        "expected feature:value, got '7'",
    ]
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump(wide_schema(3)))
    options = BuildOptions(
        "letor",
        str(path),
        tmp_path / "schema.yaml",
        tmp_path / "data",
        split="hash",
        max_lost=0.6,
    )
    manifest = build(options)
    assert manifest["rows"] == {"read": 9, "written": 4, "rejected": 5, "cut": 0}
    assert manifest["rejects"]["column 'qid': a value is required"] == 1


@pytest.mark.parametrize(
    "sizes, message",
    [
        (None, r"line 1 has no qid, and there is no file .*a.txt.query with sizes"),
        ("1\n", "has 3 rows, the sizes of its queries add up to 1"),
        ("2\n5\n", "has 3 rows, the sizes of its queries add up to 7"),
        ("2\nmany\n", "a.txt.query, line 2: expected the size of a query, got 'many'"),
    ],
)
def test_sizes_that_dont_add_up_are_rejected(tmp_path, sizes, message):
    path = written(tmp_path / "a.txt", "1 1:1\n0 1:2\n0 1:4\n")
    if sizes is not None:
        (tmp_path / "a.txt.query").write_text(sizes)
    with pytest.raises(UserError, match=message) as caught:
        values(tmp_path, path)
    assert "\n" not in str(caught.value)


def test_files_without_a_feature_are_rejected(tmp_path):
    with pytest.raises(UserError, match="no line has a feature"):
        values(tmp_path, written(tmp_path / "a.txt", "1 qid:1\n"))
    with pytest.raises(UserError, match="the file is empty"):
        values(tmp_path, written(tmp_path / "a.txt", ""), schema=wide_schema(1))


def test_splits_of_the_files_are_kept(tmp_path):
    for name, query in (("train", 1), ("vali", 2), ("test", 3)):
        written(tmp_path / f"{name}.txt", f"1 qid:{query} 1:1\n0 qid:{query} 1:2\n")
    settings = (f"validation={tmp_path}/vali.txt", f"test={tmp_path}/test.txt")
    options = BuildOptions(
        "letor", f"{tmp_path}/train.txt", None, tmp_path / "data", settings=settings
    )
    manifest = build(options)
    assert manifest["split"] == {"by": "files", "bounds": None}
    assert {name: split["lists"] for name, split in manifest["splits"].items()} == {
        "train": 1,
        "validation": 1,
        "test": 1,
    }
    with pytest.raises(UserError, match="split hash: the files define the splits"):
        build(replace(options, out=tmp_path / "other", split="hash"))
    with pytest.raises(UserError, match=r"validation: .*vali\.txt belongs to the train split too"):
        values(tmp_path, f"{tmp_path}/*.txt", *settings)


def test_the_real_files_have_the_documented_counts(tmp_path, real_data):
    folder = real_data / "lightgbm_lambdarank"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    manifest = build(
        BuildOptions(
            "letor",
            str(folder / "rank.train.gz"),
            None,
            tmp_path / "data",
            settings=(f"test={folder / 'rank.test.gz'}",),
        )
    )
    lists = {name: split["lists"] for name, split in manifest["splits"].items()}
    assert lists == {"train": 201, "validation": 0, "test": 50}
    assert manifest["rows"] == {"read": 3773, "written": 3773, "rejected": 0, "cut": 0}
    actual = get_source("letor")
    schema = actual.schema(str(folder / "rank.*.gz"), parse_options(actual.options, (), "letor"))
    assert schema.feature("features").width == 300
    assert len(list(logs.records(tmp_path / "data", "train"))) == 201
