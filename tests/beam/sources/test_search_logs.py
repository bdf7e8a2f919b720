import json

import pytest
import yaml

from tests.beam import logs
from tests.beam.sourcing import rows_of
from tfr_moe.beam import BuildOptions, build
from tfr_moe.data import DataFolder
from tfr_moe.errors import UserError

SCHEMA = {
    "list_id": "search",
    "time": "time",
    "position": "position",
    "labels": ["grade"],
    "features": [
        {"name": "user_age", "scope": "context", "kind": "numeric"},
        {"name": "item", "scope": "example", "kind": "categorical"},
    ],
}
NESTED = [
    {
        "search": "s1",
        "time": 100,
        "user": {"age": 30},
        "response": {
            "took": 3,
            "items": [{"item": "a", "grade": 1}, {"item": "b", "grade": 0, "shop": {"id": 7}}],
        },
    },
    {"search": "s2", "time": 200, "user": {"age": 40}, "response": {"items": []}},
    {"search": "s3", "time": 300, "user": {"age": 50}, "response": {"items": ["a"]}},
    {"search": "s4", "time": 300, "user": {"age": 50}},
    {
        "search": "s5",
        "time": 400,
        "user": {"age": 50},
        "response": {"items": [{"item": "c", "grade": 2, "position": 9}]},
    },
]


def write_lines(path, values):
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def test_nested_lines_become_a_row_for_each_item(tmp_path):
    path = write_lines(tmp_path / "log.jsonl", NESTED)
    rows, _, _ = rows_of(tmp_path, "search-logs", path, SCHEMA, "items=response.items")
    assert [(row.line, row.order) for row in rows] == [
        (1, 0),
        (1, 1),
        (2, 0),
        (3, 0),
        (4, 0),
        (5, 0),
    ]
    assert rows[1].values == {
        "search": "s1",
        "time": 100,
        "user_age": 30,
        "response_took": 3,
        "position": 2,
        "item": "b",
        "grade": 0,
        "shop_id": 7,
    }
    assert rows[5].values["position"] == 9
    assert [row.error for row in rows[2:5]] == [
        "'response.items': expected an array of items, got []",
        "'response.items': expected objects, got 'a'",
        "'response.items': expected an array of items, got nothing",
    ]


def test_a_nested_log_builds_and_empty_lists_are_rejected_and_counted(tmp_path):
    path = write_lines(tmp_path / "log.jsonl", NESTED)
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump(SCHEMA))
    options = BuildOptions(
        "search-logs", str(path), tmp_path / "schema.yaml", tmp_path / "data",
        settings=("items=response.items", "negatives=2 a list, by sales^0.5"), max_lost=0.5,
        validation_fraction=0.0, test_fraction=0.0,
    )  # fmt: skip
    manifest = build(options)
    assert DataFolder(tmp_path / "data").notes == {"negatives": "2 a list, by sales^0.5"}
    assert manifest["rows"] == {"read": 6, "written": 3, "rejected": 3, "cut": 0}
    assert manifest["splits"]["train"]["lists"] == 2


ROWS = [
    # search, time, position, item, click, purchase
    ("s1", 0, 1, "a", 1, 0),
    ("s1", 0, 2, "b", 0, 0),
    ("s1", 60, 1, "a", 0, 1),
    ("s1", 7200, 2, "b", 1, 0),
    ("s2", 10, 1, "a", 0, 0),
    ("s2", 10, 1, "a", 0, 0),
]


def log(folder, rows=ROWS):
    names = ("search", "time", "position", "item", "click", "purchase")
    return [{**dict(zip(names, row, strict=True)), "user_age": 30} for row in rows]


def test_a_grade_is_the_highest_of_the_columns_above_0(tmp_path):
    path = logs.write_csv(tmp_path / "log.csv", log(tmp_path))
    rows, _, _ = rows_of(tmp_path, "search-logs", path, SCHEMA, "grades=click:1,purchase:3")
    assert [row.values["grade"] for row in rows] == [1.0, 0.0, 3.0, 1.0, 0.0, 0.0]


def test_grades_may_be_of_a_joined_table(tmp_path):
    path = logs.write_csv(tmp_path / "log.csv", log(tmp_path))
    bought = [{"search": "s1", "item": "b", "bought": 1}]
    table = logs.write_csv(tmp_path / "purchases.csv", bought)
    settings = ("grades=click:1,bought:5", f"join={table}", "join_by=search,item")
    rows, _, _ = rows_of(tmp_path, "search-logs", path, SCHEMA, *settings)
    assert [row.values["grade"] for row in rows] == [1.0, 5.0, 0.0, 5.0, 0.0, 0.0]


def test_rows_that_cant_be_graded_reach_the_rejects(tmp_path):
    broken = [*log(tmp_path), *log(tmp_path, [("s4", 5, 1, "a", "often", 0)])]
    path = logs.write_csv(tmp_path / "log.csv", broken)
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump(SCHEMA))
    options = BuildOptions(
        "search-logs", str(path), tmp_path / "schema.yaml", tmp_path / "data",
        settings=("grades=click:1,purchase:3",), max_lost=0.6,
        validation_fraction=0.0, test_fraction=0.0,
    )  # fmt: skip
    manifest = build(options)
    assert manifest["rows"] == {"read": 7, "written": 6, "rejected": 1, "cut": 0}
    assert sorted(manifest["rejects"]) == ["column 'click': expected a number"]


@pytest.mark.parametrize(
    "settings, message",
    [
        (["grades=click"], "grades[0]: expected column:grade with a grade >= 0, got 'click'"),
        (["grades=click:1,cart:2"], "missing column 'cart'"),
        (["items=items"], "log.csv: items needs JSON lines"),
        (["colour=1"], "source search-logs has no such option; available: items, grades"),
        (["join"], "setting 'join': must be key=value"),
    ],
)
def test_what_cant_work_is_rejected_in_one_line(tmp_path, settings, message):
    path = logs.write_csv(tmp_path / "log.csv", [{**row, "grade": 0} for row in log(tmp_path)])
    with pytest.raises(UserError) as caught:
        rows_of(tmp_path, "search-logs", path, SCHEMA, *settings)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def scored(folder):
    """Scores of an earlier ranker for some rows of the log, one of them twice."""
    scores = [
        {"list_id": "s1", "item": "a", "score": 0.5, "rank": 2},
        {"list_id": "s1", "item": "b", "score": 1.5, "rank": 1},
        {"list_id": "s1", "item": "b", "score": 1.5, "rank": 1},
        {"list_id": "", "item": "b", "score": 9, "rank": 1},
    ]
    return logs.write_csv(folder / "scores.csv", scores)


def test_columns_of_another_table_are_joined_by_their_key(tmp_path):
    path = logs.write_csv(tmp_path / "log.csv", [{**row, "grade": 0} for row in log(tmp_path)])
    features = [
        *SCHEMA["features"],
        {"name": "score", "scope": "example", "kind": "numeric", "default": -1.0},
    ]
    settings = (f"join={scored(tmp_path)}", "join_by=search:list_id,item")
    rows, counts, rejects = rows_of(
        tmp_path, "search-logs", path, {**SCHEMA, "features": features}, *settings
    )
    assert [(row.values["item"], row.values["score"]) for row in rows] == [
        ("a", "0.5"),
        ("b", "1.5"),
        ("a", "0.5"),
        ("b", "1.5"),
        ("a", None),
        ("a", None),
    ]
    assert "rank" not in rows[0].values
    actual = {key[2]: n for key, n in counts.items() if key[1] == "joined rows"}
    assert actual == {"read": 4, "kept": 2, "duplicate": 1, "rejected": 1}
    assert [reject[:3] for reject in rejects] == [(1, 5, "column 'list_id': a value is required")]


@pytest.mark.parametrize(
    "settings, message",
    [
        (["join=scores.csv"], "join and join_by must be used together"),
        (["join=SCORES", "join_by=search:list_id,product"], "scores.csv: missing column 'product'"),
        (
            ["join=SCORES", "join_by=search:list_id,rank"],
            "log.csv: missing column 'rank'",
        ),
        (["join=nowhere.csv", "join_by=search"], "join nowhere.csv: no file matches"),
        (
            ["join=GRADES", "join_by=item"],
            "log.csv: column 'grade' is also in the table of join; rename one",
        ),
    ],
)
def test_a_table_that_cant_be_joined_is_rejected(tmp_path, settings, message):
    path = logs.write_csv(tmp_path / "log.csv", [{**row, "grade": 0} for row in log(tmp_path)])
    grades = logs.write_csv(tmp_path / "grades.csv", [{"item": "a", "grade": 3}])
    settings = [
        text.replace("SCORES", str(scored(tmp_path))).replace("GRADES", str(grades))
        for text in settings
    ]
    with pytest.raises(UserError) as caught:
        rows_of(tmp_path, "search-logs", path, SCHEMA, *settings)
    assert message in str(caught.value)
