import gzip

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.beam.sourcing import elements
from tfr_moe.beam.rows import RawRow
from tfr_moe.beam.runner import reporting
from tfr_moe.beam.sources import files, parquet_rows
from tfr_moe.errors import UserError


def read(path):
    rows = list(files.read(str(path), 3))
    with pytest.MonkeyPatch.context() as patch:  # row by row, by the csv module where it has quotes
        patch.setattr(files.CsvReader, "columns", lambda self, size: None)
        assert list(files.read(str(path), 3)) == rows
    for size in (1, 2, 500):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(files, "_BATCH", size)
            batches = list(files.read_batches(str(path), 3))
        assert [row for batch in batches for row in rows_of(batch)] == rows
    return rows


def rows_of(batch):
    if isinstance(batch, list):
        return batch
    return [RawRow(batch.file, batch.line + i, row) for i, row in enumerate(batch.rows)]


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
    assert files.columns(str(path)) == {"a", "b"}
    assert read(path)[0].values == {"a": "1", "b": "2"}


def test_rows_that_cant_be_parsed_carry_the_reason(tmp_path):
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


def rows_and_errors(tmp_path, text: str) -> list[tuple[int, object]]:
    path = tmp_path / "log.csv"
    path.write_text(text)
    return [(row.line, row.error or list(row.values.values())) for row in read(path)]


def test_a_stray_quote_costs_its_own_line_alone(tmp_path):
    lines = [f"q{n},i{n},{n % 5}" for n in range(100)]
    lines[3], lines[90] = 'q3,"24 inch tv,0', 'q90,"27 inch tv,0'
    actual = rows_and_errors(tmp_path, "q,item,click\n" + "\n".join(lines) + "\n")
    assert [line for line, _ in actual] == list(range(2, 102))
    assert [(line, error) for line, error in actual if isinstance(error, str)] == [
        (5, "not a CSV row (',' expected after '\"')"),
        (92, "a quote is not closed within 100 lines"),
    ]


def test_rows_between_two_quotes_are_not_taken_for_one_field(tmp_path):
    # Read as CSV, this is one row with a field of three lines.
    actual = rows_and_errors(tmp_path, 'q,item\na,"x\nb,y\nc,z"\nd,w\n')
    error = "a quote is not closed within 100 lines"
    assert actual == [(2, error), (3, ["b", "y"]), (4, ["c", 'z"']), (5, ["d", "w"])]


def test_a_quote_that_is_never_closed_costs_one_line_of_a_long_file(tmp_path):
    rows = "".join(f"q{n},i\n" for n in range(3000))
    actual = rows_and_errors(tmp_path, f'q,item\na,"x\n{rows}')
    assert len(actual) == 3001
    assert [line for line, error in actual if isinstance(error, str)] == [2]


def test_a_field_beyond_the_limit_of_the_csv_module_costs_its_row(tmp_path):
    rows = f'a,x\nb,"{"y" * 140_000}"\nc,z\n'
    (first, second, third) = rows_and_errors(tmp_path, f"q,item\n{rows}")
    assert (first, third) == ((2, ["a", "x"]), (4, ["c", "z"]))
    assert second == (3, "not a CSV row (field larger than field limit (131072))")


def test_json_that_has_no_single_meaning_is_rejected(tmp_path):
    path = tmp_path / "log.jsonl"
    deep = '{"a": ' + "[" * 20000 + "]" * 20000 + "}"
    path.write_text('{"a": 1, "a": 2}\n{"a": "\\ud800"}\n{"a": "\\ud83d\\ude00"}\n' + deep + "\n")
    assert [row.error for row in read(path)] == [
        "not valid JSON (key 'a' occurs twice)",
        "not valid JSON (half of a surrogate pair)",
        None,
        "not valid JSON (nested too deeply)",
    ]


def test_progress_adds_up_to_the_size_of_the_file(tmp_path):
    path = tmp_path / "log.csv.gz"
    with gzip.open(path, "wt") as file:
        file.write("a\n" + "".join(f"{i * 7919 % 10007}\n" for i in range(20000)))
    size, done = path.stat().st_size, []
    with reporting(lambda so_far, total, stage: done.append(so_far), size, 0):
        assert sum(1 for _ in files.read(str(path), 0)) == 20000
    assert done[-1] == size and len(done) == 41 and done == sorted(done)


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
    assert files.file_format(name) == kind


def test_a_pattern_without_a_folder_is_of_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("log 1.csv", "log 2.csv", "other.csv"):
        (tmp_path / name).write_text("a,b\n")
    assert files.match("log*.csv") == {"log 1.csv": 4, "log 2.csv": 4}
    with pytest.raises(UserError, match=r"input \*\.tsv: no file matches"):
        files.match("*.tsv")
    (tmp_path / "logs").mkdir()
    with pytest.raises(UserError, match="input logs: is a folder; name its files"):
        files.match("logs")


def test_columns_of_json_lines_are_those_of_all_the_first_rows(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"a": 1}\n{"b": 2}\n')
    assert files.columns(str(path)) == {"a", "b"}


def test_a_column_that_a_parquet_file_has_twice_is_rejected(tmp_path):
    path = tmp_path / "log.parquet"
    parquet.write_table(pa.table([[1], ["x"], [2.0]], names=["q", "item", "item"]), path)
    with pytest.raises(UserError, match=r"log.parquet: column 'item' occurs twice in the header"):
        files.columns(str(path))


def test_a_parquet_file_that_breaks_off_is_rejected(tmp_path):
    path = tmp_path / "log.parquet"
    parquet.write_table(pa.table({"a": list(range(1000))}), path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match=r"log.parquet: the Parquet file cannot be read"):
        read(path)


def test_rows_of_a_parquet_file_are_numbered_through_all_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_rows, "_BATCH", 2)
    path = tmp_path / "log.parquet"
    parquet.write_table(pa.table({"a": [1, None, 3], "b": [["x"], [], None]}), path)
    rows = [(row.line, row.values) for row in read(path)]
    assert rows == [(1, {"a": 1, "b": ["x"]}), (2, {"a": None, "b": []}), (3, {"a": 3, "b": None})]


def test_dictionary_encoded_columns_of_parquet_have_their_values(tmp_path):
    path = tmp_path / "log.parquet"
    brand = pa.array(["x", None, "é", "x"]).dictionary_encode()
    size = pa.array([3, 3, None, 1]).dictionary_encode()
    parquet.write_table(pa.table({"brand": brand, "size": size}), path, row_group_size=3)
    assert [(row.line, row.values) for row in read(path)] == [
        (1, {"brand": "x", "size": 3}),
        (2, {"brand": None, "size": 3}),
        (3, {"brand": "é", "size": None}),
        (4, {"brand": "x", "size": 1}),
    ]


@pytest.mark.parametrize("rows", [0, 1, 9, 20])
def test_parts_of_a_parquet_file_are_its_rows_and_its_bytes(tmp_path, monkeypatch, rows):
    monkeypatch.setattr(parquet_rows, "_PART", 5)
    path = tmp_path / "log.parquet"
    parquet.write_table(pa.table({"a": pa.array(range(rows), pa.int64())}), path, row_group_size=2)
    parts = list(files._parts(3, str(path)))
    # Three row groups of two rows are the fewest with five rows.
    assert [part[-1].line for part in parts] == list(range(1, max(rows, 1) + 1, 6))
    done, size = [], path.stat().st_size
    with reporting(lambda so_far, total, stage: done.append(so_far), size + 1, 0):
        batches = [batch for part in parts for batch in files.read_batches(*part)]
    assert [row for batch in batches for row in rows_of(batch)] == read(path)
    assert done[-1] == size


def test_other_files_are_one_part(tmp_path):
    (tmp_path / "log.csv").write_text("a\n" + "1\n" * 70_000)
    path = str(tmp_path / "log.csv")
    assert list(files._parts(3, path)) == [(path, 3, "csv", None)]


@pytest.mark.parametrize("name", ["log.parquet", "log.csv"])
def test_rows_by_column_and_by_row_are_the_same(tmp_path, monkeypatch, name):
    table = pa.table({"a": list(map(str, range(1200)))})
    if name.endswith("csv"):
        (tmp_path / name).write_text("a\n" + "".join(f"{a}\n" for a in range(1200)))
    else:
        parquet.write_table(table, tmp_path / name, row_group_size=100)
    monkeypatch.setattr(parquet_rows, "_PART", 300)

    by_row, by_column = (
        elements(tmp_path, files.ReadRows([str(tmp_path / name)], 3, by_column))
        for by_column in (False, True)
    )
    assert all(isinstance(batch, list) and len(batch) <= 500 for batch in by_row)
    rows = [row for batch in by_row for row in batch]
    assert sorted(rows) == sorted(row for batch in by_column for row in rows_of(batch))
    assert sorted((row.file, row.line, int(row.values["a"])) for row in rows) == [
        (3, number + 1 + name.endswith("csv"), number) for number in range(1200)
    ]
