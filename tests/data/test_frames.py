"""Data frames as lists: grouping, types, splits and errors, by hand."""

from datetime import date, datetime, timezone

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tfr_moe.data import ElwcDatasetBuilder
from tfr_moe.data.columns import read_ids, read_numbers, read_times, read_wide
from tfr_moe.data.frames import scoring_data, training_data
from tfr_moe.data.lists import frame_columns, group, parse
from tfr_moe.elwc.splits import hash_fraction
from tfr_moe.elwc.values import to_time
from tfr_moe.errors import UserError
from tfr_moe.schema import Feature, FeatureSchema
from tfr_moe.tables.arrow import to_table

SCHEMA = FeatureSchema.model_validate(
    {
        "list_id": "q",
        "labels": ["buy"],
        "position": "pos",
        "hierarchy": {"child": "sub", "parent": "top"},
        "features": [
            {"name": "top", "scope": "context", "kind": "categorical"},
            {"name": "sub", "scope": "context", "kind": "categorical"},
            {"name": "brand", "scope": "example", "kind": "categorical"},
            {
                "name": "price",
                "scope": "example",
                "kind": "numeric",
                "transform": "log1p",
                "required": True,
            },
            {"name": "stars", "scope": "example", "kind": "numeric", "missing": 3.0},
        ],
    }
)


def frame():
    """Three lists, their rows mixed: a has the items 1, 4 and 3 (by position), b 0, c 2 and 5."""
    return pd.DataFrame(
        {
            "q": ["b", "a", "c", "a", "a", "c"],
            "pos": [1, 1, 1, 3, 2, 2],
            "buy": [1, 0, 0, 1, 0, 2],
            "top": ["t", "u", "t", "u", "u", "t"],
            "sub": ["x", "x", "y", "x", "x", "y"],
            "brand": ["k", "k", "m", " k ", "", "n"],
            "price": [1.0, 3.0, 0.0, 7.0, 1.0, 15.0],
            "stars": [5.0, None, 4.0, 2.0, 1.0, None],
        }
    )


def parsed(rows, schema=SCHEMA):
    """The lists of a frame by their ID: features of the list and of its items."""
    table = to_table(rows, frame_columns(schema))
    lists = group(table, schema)
    split = parse(table, schema, {"all": lists})["all"]
    result = {}
    for i, name in enumerate(lists.list_ids):
        items = slice(*split.row_splits[i : i + 2])
        brand = split.example["brand"]
        result[name] = {
            "rows": lists.rows[items].tolist(),
            "brand": [brand.words[c].decode() for c in brand.codes[items, 0]],
            "numbers": split.example["example_numeric"][items].tolist(),
            "buy": split.example["buy"][items, 0].tolist(),
        }
    return result


def test_rows_are_grouped_by_list_in_the_order_of_their_positions():
    actual = parsed(frame())
    assert {name: of["rows"] for name, of in actual.items()} == {
        "b": [0],
        "a": [1, 4, 3],
        "c": [2, 5],
    }
    assert actual["a"] == {
        "rows": [1, 4, 3],
        "brand": ["k", "", "k"],
        "numbers": [[3.0, 3.0], [1.0, 1.0], [7.0, 2.0]],
        "buy": [0.0, 0.0, 1.0],
    }


def test_the_order_of_the_rows_does_not_matter():
    order = [5, 2, 0, 4, 1, 3]
    shuffled = parsed(frame().iloc[order])
    actual = parsed(frame())
    for name, of in shuffled.items():
        assert [order[row] for row in of.pop("rows")] == actual[name].pop("rows")
    assert shuffled == actual


def test_without_positions_items_keep_the_order_of_their_rows():
    schema = SCHEMA.model_copy(update={"position": None})
    assert parsed(frame(), schema)["a"]["rows"] == [1, 3, 4]


def test_statistics_and_vocabularies_come_from_the_training_frame_only():
    rows = frame()
    data = training_data(rows[rows.q != "c"], rows[rows.q == "c"], SCHEMA, "run")
    tables = data.tables()
    # log1p of the prices 1, 3, 7, 1 is ln 2 times 1, 2, 3, 1; of the stars one is missing.
    price, stars = (tables.statistics["example"][name] for name in ("price", "stars"))
    assert price["count"] == 4
    assert price["mean"] == pytest.approx(np.log(2) * 7 / 4)
    assert price["std"] == pytest.approx(np.log(2) * np.sqrt(11) / 4)
    assert (stars["mean"], stars["min"], stars["max"]) == (2.75, 1.0, 5.0)
    assert tables.statistics["context"] == {}
    # k occurs three times; m and n only in validation.
    assert tables.vocabularies == {"top": ["t", "u"], "sub": ["t > x", "u > x"], "brand": ["k"]}
    assert (data.num_lists("train"), data.num_lists("validation")) == (2, 1)


def test_batches_are_padded_as_those_of_records_are():
    rows = frame()
    data = training_data(rows, rows, SCHEMA, "run")
    features, labels, extras = next(
        iter(ElwcDatasetBuilder(data, 3).build_evaluation_dataset("train"))
    )
    index = extras["q"].numpy()[:, 0].tolist().index(b"b")
    assert features["example_list_mask"].numpy()[index].tolist() == [True, False, False]
    assert labels.numpy()[index].tolist() == [1.0, -1.0, -1.0]
    assert features["brand"].numpy()[index, :, 0].tolist() == [b"k", b"", b""]
    # Padded items read the default of the feature.
    assert features["example_numeric"].numpy()[index].tolist() == [
        [1.0, 5.0],
        [0.0, 3.0],
        [0.0, 3.0],
    ]


def test_the_latest_lists_are_for_validation():
    schema = SCHEMA.model_copy(update={"time": "at"})
    rows = frame()
    rows["at"] = [f"2024-01-0{day}" for day in (3, 1, 2, 1, 1, 2)]
    data = training_data(rows, None, schema, "run", validation_fraction=0.33)
    assert data.splits["validation"].context["q"].numpy().tolist() == [[b"b"]]


def test_without_time_a_hash_of_the_list_id_decides():
    rows = pd.concat([frame().assign(q=frame().q + str(i)) for i in range(20)])
    data = training_data(rows, None, SCHEMA, "run", validation_fraction=0.3)
    validation = {q.decode() for q in data.splits["validation"].context["q"].numpy()[:, 0]}
    assert validation == {q for q in rows.q if hash_fraction(q, 0) >= 0.7}
    assert data.num_lists("train") + data.num_lists("validation") == 60


def test_long_lists_are_cut_and_lost_positives_counted():
    lines = []
    arguments = (frame(), frame(), SCHEMA, "run", 0.1, 2)
    data = training_data(*arguments, max_lost=0.4, log=lines.append)
    assert data.splits["train"].row_splits[-1] == 5
    # List a loses its third item, which was bought.
    lost = "1 of 3 train items with a label above 0 are cut by max_list_size=2"
    assert lines[:2] == [
        "warning: 1 train items are beyond max_list_size=2",
        f"warning: {lost}",
    ]
    assert len(lines) == 4
    with pytest.raises(UserError, match=rf"^{lost} \(33.3%\), more than max_lost=0.05 allows$"):
        training_data(*arguments)


def test_few_lists_may_differ_in_their_context_and_the_first_row_wins():
    rows = frame().assign(top=list("tutvuw"))
    lines = []
    data = training_data(rows, rows, SCHEMA, "run", max_lost=0.7, log=lines.append)
    context = data.splits["train"].context
    words = context["top"].words.numpy()[context["top"].codes.numpy()[:, 0]]
    names = context["q"].numpy()[:, 0]
    assert dict(zip(names, words, strict=True)) == {b"a": b"u", b"b": b"t", b"c": b"t"}
    assert "2 of 3 lists have several values of the context feature 'top'" in lines[0]


def test_rows_that_are_there_twice_are_told():
    lines, both = [], pd.concat([frame(), frame()])
    training_data(both, frame(), SCHEMA, "run", log=lines.append)
    # List b has one item twice, which may be two items.
    message = "2 of 3 lists have every item twice, equal in all columns: is the input read twice?"
    assert lines == [f"warning: {message}"]
    both["price"] = np.arange(12.0)
    training_data(both, frame(), SCHEMA, "run", log=lines.append)
    assert len(lines) == 1


class Streamed:
    """A data frame of another library, as polars has: nothing but Arrow's stream."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "convert",
    [
        pa.Table.from_pandas,
        pa.RecordBatch.from_pandas,
        lambda rows: Streamed(pa.Table.from_pandas(rows)),
        lambda rows: rows.astype({"q": "category", "brand": "category", "buy": bool, "pos": str}),
        lambda rows: rows.astype({"price": str, "buy": float}).set_index(pd.Index([9] * 6)),
    ],
    ids=["table", "batch", "stream", "categories", "text"],
)
def test_frames_of_all_kinds_give_the_same_lists(convert):
    rows = frame().assign(buy=frame().buy.clip(upper=1))
    assert parsed(convert(rows)) == parsed(rows)


def test_ids_are_the_text_of_integers_floats_and_booleans():
    feature = Feature(name="x", scope="example", kind="categorical")
    columns = [[7, 8], [7.0, 0.5], [True, False], ["7", " b "], [None, "c"]]
    actual = [read_ids(feature, pa.chunked_array([pa.array(column)])) for column in columns]
    texts = [[ids.words[code] for code in ids.codes] for ids in actual]
    assert texts == [["7", "8"], ["7", "0.5"], ["true", "false"], ["7", "b"], ["", "c"]]


@pytest.mark.parametrize(
    "column",
    [
        ["a|b|c|d", " b ", None, "", "d||e"],
        [["a", "b", "c", "d"], ["b"], None, [], ["d", None, "e"]],
    ],
    ids=["text", "arrays"],
)
def test_id_lists_keep_the_latest_entries(column):
    feature = Feature(name="x", scope="example", kind="categorical_list", max_length=3)
    codes, words = read_ids(feature, pa.chunked_array([pa.array(column)]))
    assert [[words[code] for code in row] for row in codes] == [
        ["b", "c", "d"],
        ["b", "", ""],
        ["", "", ""],
        ["", "", ""],
        ["d", "e", ""],
    ]


@pytest.mark.parametrize(
    "column", [[[1.0, 2.0], None, [3.0, 4.0]], ["1|2", None, "3|4"]], ids=["arrays", "text"]
)
def test_wide_numerics_have_a_value_in_each_column(column):
    feature = Feature(name="v", scope="example", kind="numeric", width=2, default=0.5)
    values = read_wide(feature, pa.chunked_array([pa.array(column)]))
    assert values.tolist() == [[1.0, 2.0], [0.5, 0.5], [3.0, 4.0]]


@pytest.mark.parametrize(
    "column",
    [
        [1704067200, 1704067201],
        ["2024-01-01", "2024-01-01 00:00:01.25"],
        ["2024-01-01T00:00:00Z", "2024-01-01T00:00:01Z"],
        ["2024-01-01 01:00:00+01:00", "2024-01-01 00:00:01 UTC"],
        ["1704067200", "1704067201.5"],
        [datetime(2024, 1, 1), datetime(2024, 1, 1, 0, 0, 1, 250_000)],
        [datetime(2024, 1, 1, tzinfo=timezone.utc), datetime(2024, 1, 2, tzinfo=timezone.utc)],
        [date(2024, 1, 1), date(2024, 1, 2)],
    ],
)
def test_times_are_those_of_rows(column):
    actual = read_times("at", pa.chunked_array([pa.array(column)]))
    assert actual.tolist() == [to_time("at", value) for value in column]
    assert actual[0] == 1704067200.0


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([1706659200, 20240131], "got a date as a number: 20240131"),
        (["1706659200", "20240131"], "got a date as a number: 20240131"),
        ([1.7e9, 1.7e12], "expected Unix seconds, got milliseconds: 1700000000000"),
        (["2024-01-31", "yesterday"], "expected ISO 8601 time or Unix seconds, got 'yesterday'"),
        (["2024-01-31", None], "a value is required"),
        ([1.7e9, np.nan], "a value is required"),
        ([1706659200, None], "a value is required"),
    ],
)
def test_times_that_build_rejects_are_named_with_their_row(column, message):
    with pytest.raises(UserError) as caught:
        read_times("at", pa.chunked_array([pa.array(column)]))
    assert str(caught.value).startswith("row 1: column 'at': ")
    assert str(caught.value).endswith(message)


def test_a_column_without_any_value_may_have_several_chunks():
    column = pa.chunked_array([pa.nulls(2), pa.nulls(1)])
    assert np.isnan(read_numbers("x", column, float("nan"))).tolist() == [True] * 3
    brand = SCHEMA.feature("brand")
    codes, words = read_ids(brand, column)
    assert [words[code] for code in codes] == [""] * 3


def test_numbers_are_checked_by_row():
    column = pa.chunked_array([pa.array([1.0, np.inf])])
    with pytest.raises(UserError, match="row 1: column 'x': expected a finite number, got inf"):
        read_numbers("x", column)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"price": [1.0, None, 2.0, None, 3.0, 4.0]},
            "column 'price': 2 of 6 rows have no value, the first is row 1; the schema "
            "requires one",
        ),
        ({"price": list("12345x")}, "row 5: column 'price': expected a number, got 'x'"),
        ({"price": [[1]] * 6}, "column 'price': expected numbers, got values of type list"),
        ({"buy": [0, 0, -1, 0, 0, 0]}, "row 2: column 'buy': must be >= 0, got -1"),
        ({"pos": [1, 1, 1, 0, 2, 2]}, "row 3: column 'pos': must be >= 1, got 0"),
        ({"q": ["b", "a", None, "a", "a", "c"]}, "row 2: column 'q': a value is required"),
        (
            {"brand": pd.to_datetime(["2024-01-01"] * 6)},
            "row 0: column 'brand': expected an id (text or number), got datetime",
        ),
        (
            {"top": ["t", "u", "t", "v", "u", "w"]},
            "2 of 3 lists have several values of the context feature 'top'; the first is list 'a' "
            "at row 3 (66.7%), more than max_lost=0.05 allows",
        ),
        ({"brand": [["k"]] * 6}, "column 'brand': expected IDs, got values of type list"),
        (
            {"price": [1, 2.5, None, "a", 1, 1]},
            "row 3: column 'price': has values of several types: 'a' after 1",
        ),
        (
            {"price": [[1], ["a"], [1], [1], [1], [1]]},
            "column 'price': has values of several types: Could not convert 'a'",
        ),
    ],
)
def test_invalid_columns_are_named_with_their_first_row(change, message):
    with pytest.raises(UserError) as caught:
        parsed(frame().assign(**change))
    assert str(caught.value).startswith(message)


def test_other_errors_say_what_is_wrong():
    cases = [
        (
            lambda: parsed(frame().drop(columns="brand")),
            "feature 'brand' is missing; there are",
        ),
        (
            lambda: parsed(frame().set_index(["q", "brand"])),
            "list_id 'q' is in the index of the frame; call reset_index()",
        ),
        (lambda: parsed(frame().iloc[:0]), "the data frame has no rows"),
        (lambda: parsed({"q": [1]}), "a data frame must be of pandas, polars or pyarrow"),
        (
            lambda: training_data(frame(), frame().assign(buy=-1), SCHEMA, "run"),
            "validation: row 0: column 'buy': must be >= 0, got -1",
        ),
        (
            lambda: training_data(frame()[:1], None, SCHEMA, "run"),
            "train has no lists; give a validation frame, or more lists",
        ),
        (
            lambda: training_data(frame(), None, SCHEMA, "run", validation_fraction=0.6),
            "validation_fraction must be above 0 and at most 0.5, got 0.6",
        ),
    ]
    for call, message in cases:
        with pytest.raises(UserError) as caught:
            call()
        assert str(caught.value).startswith(message)


def test_rows_to_score_need_neither_labels_nor_positions():
    data, lists = scoring_data(frame().drop(columns=["buy", "pos"]), SCHEMA, "x", labelled=False)
    assert sorted(lists.rows.tolist()) == [0, 1, 2, 3, 4, 5]
    assert set(data.splits["x"].example) == {"brand", "example_numeric"}


def test_text_as_polars_stores_it_is_read():
    if not hasattr(pa, "string_view"):
        pytest.skip("this pyarrow has no string views")
    table = to_table(frame())
    views = [
        column.cast(pa.string_view()) if pa.types.is_large_string(column.type) else column
        for column in table.columns
    ]
    assert parsed(pa.table(views, names=table.column_names)) == parsed(table)
