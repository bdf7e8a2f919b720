import gzip

import pytest

from tfr_moe.beam.sources import formats
from tfr_moe.errors import UserError


def read(path):
    return list(formats.read(str(path), 3, path.stat().st_size, lambda amount: None))


def test_rows_of_a_csv_file_carry_the_line_they_begin_on(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text('a,b\n1,x\n2,"two\nlines"\n\n3,z\n')
    rows = read(path)
    assert [(row.file, row.line) for row in rows] == [(3, 2), (3, 3), (3, 6)]
    assert [row.values for row in rows] == [
        {"a": "1", "b": "x"},
        {"a": "2", "b": "two\nlines"},
        {"a": "3", "b": "z"},
    ]


def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path):
    path = tmp_path / "log.csv"
    path.write_bytes(b"\xef\xbb\xbfa,b\n1,2\n")
    assert formats.columns(str(path)) == {"a", "b"}
    assert read(path)[0].values == {"a": "1", "b": "2"}


def test_rows_that_cant_be_taken_apart_say_why(tmp_path):
    path = tmp_path / "log.csv"
    path.write_bytes(b"a,b\n1\n1,2,3\n1,\xff\n\xc3\xa9,2\n")
    assert [row.error for row in read(path)] == [
        "expected 2 fields, got 1",
        "expected 2 fields, got 3",
        "not valid UTF-8",
        None,
    ]
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"a": 1}\n\n[1]\n{"a": \n{"a": "\xff"}\n')
    rows = read(path)
    assert [row.line for row in rows] == [1, 3, 4, 5]
    assert [row.error and row.error.split(" (")[0] for row in rows] == [
        None,
        "expected a JSON object, got list",
        "not valid JSON",
        "not valid UTF-8",
    ]


def test_progress_adds_up_to_the_size_of_the_file(tmp_path):
    path = tmp_path / "log.csv.gz"
    with gzip.open(path, "wt") as file:
        file.write("a\n" + "".join(f"{i * 7919 % 10007}\n" for i in range(20000)))
    size, told = path.stat().st_size, []
    assert sum(1 for _ in formats.read(str(path), 0, size, told.append)) == 20000
    assert sum(told) == size and len(told) == 21 and min(told) >= 0


@pytest.mark.parametrize(
    "name, kind",
    [
        ("a.csv", "csv"),
        ("a.CSV.gz", "csv"),
        ("a.json", "jsonl"),
        ("a.ndjson.gz", "jsonl"),
        ("a.b.parquet", "parquet"),
    ],
)
def test_the_format_follows_from_the_name(name, kind):
    assert formats.file_format(name) == kind


def test_columns_of_json_lines_are_those_of_all_the_first_rows(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"a": 1}\n{"b": 2}\n')
    assert formats.columns(str(path)) == {"a", "b"}


def test_a_parquet_file_that_breaks_off_is_refused(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "log.parquet"
    parquet.write_table(pa.table({"a": list(range(1000))}), path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match=r"log.parquet: not a sound Parquet file"):
        read(path)
