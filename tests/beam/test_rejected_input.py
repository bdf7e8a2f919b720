"""What a build refuses, and what it leaves behind when it fails or is killed."""

import signal
import subprocess
import sys

import pytest

from tests.beam import logs
from tfr_moe.beam import BuildOptions, build
from tfr_moe.errors import UserError


def test_a_missing_column_is_named_with_its_file(tmp_path):
    rows = [{k: v for k, v in row.items() if k != "price"} for row in logs.log_rows(4)]
    for write, name in (
        (logs.write_csv, "log.csv"),
        (logs.write_jsonl, "log.jsonl"),
        (logs.write_parquet, "log.parquet"),
    ):
        path = write(tmp_path / name, rows)
        with pytest.raises(UserError, match=f"{path}: missing column 'price'"):
            logs.run(tmp_path, path)


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("log.csv", b"", "log.csv: the file is empty; expected a header"),
        ("log.jsonl", b"", "log.jsonl: the file is empty"),
        ("log.parquet", b"", "log.parquet: the Parquet file cannot be read"),
        ("log.txt", b"a,b\n", r"log.txt: unknown file type; .* \.csv, \.tsv, \.jsonl"),
        ("log.csv.gz", b"session,time\n", "log.csv.gz: corrupt gzip file"),
        ("log.csv", b"item,item\n", "log.csv: column 'item' occurs twice in the header"),
    ],
)
def test_files_that_cant_work_are_rejected_in_one_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        logs.run(tmp_path, tmp_path / name)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "data").exists()


def test_a_truncated_gzip_file_is_rejected_and_leaves_nothing(tmp_path, caplog):
    path = logs.write_csv(tmp_path / "log.csv.gz", logs.log_rows(3000))
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(UserError) as caught:
        logs.run(tmp_path, path)
    assert str(caught.value) == f"{path}: the gzip file is truncated"
    assert not caplog.records
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log.csv.gz", "schema.yaml"]


def test_no_file_for_the_pattern_is_rejected(tmp_path):
    with pytest.raises(UserError, match="no file matches"):
        logs.run(tmp_path, tmp_path / "*.csv")


def test_a_header_without_rows_is_rejected(tmp_path):
    (tmp_path / "log.csv").write_text(",".join(logs.log_rows(1)[0]) + "\n")
    with pytest.raises(UserError, match="there are no rows"):
        logs.run(tmp_path, tmp_path / "log.csv")


def test_a_log_of_nothing_but_bad_rows_is_rejected_with_the_first_reason(tmp_path):
    rows = [{**row, "price": "cheap"} for row in logs.log_rows(4)]
    path = logs.write_csv(tmp_path / "log.csv", rows)
    with pytest.raises(
        UserError, match=r"log.csv, line 2: column 'price': expected a number"
    ) as caught:
        logs.run(tmp_path, path)
    assert "12 were read" in str(caught.value)
    assert not (tmp_path / "data").exists()


def test_a_schema_that_is_inconsistent_is_rejected(tmp_path):
    path = logs.write_csv(tmp_path / "log.csv", logs.log_rows(4))
    with pytest.raises(UserError, match=r"schema .*schema.yaml: .*hierarchy.child"):
        logs.run(tmp_path, path, schema={"hierarchy": {"child": "x", "parent": "top"}})


def test_split_by_time_needs_a_time_column(tmp_path):
    path = logs.write_csv(tmp_path / "log.csv", logs.log_rows(4))
    with pytest.raises(UserError, match="has no time column"):
        logs.run(tmp_path, path, schema={"time": None}, split="time")
    manifest, _ = logs.run(tmp_path, path, schema={"time": None})
    assert manifest["split"] == {"by": "hash", "bounds": None}


def test_a_complete_data_set_is_not_overwritten_without_overwrite(tmp_path):
    path = logs.write_csv(tmp_path / "log.csv", logs.log_rows(10))
    _, folder = logs.run(tmp_path, path)
    before = logs.tree(folder)
    with pytest.raises(UserError, match="exists already"):
        logs.run(tmp_path, path, seed=1)
    assert logs.tree(folder) == before
    logs.run(tmp_path, path, seed=1, overwrite=True)
    assert logs.tree(folder) != before


@pytest.mark.parametrize(
    "options, message",
    [
        ({"split": "row"}, "split must be time or hash, got 'row'"),
        ({"max_list_size": 5000}, "max_list_size must be between 1 and 1000, got 5000"),
        ({"test_fraction": 0.7}, "test_fraction must be between 0 and 0.5"),
        ({"beam_args": ("--runner=Nope",)}, "Beam arguments --runner=Nope: Unexpected"),
        ({"beam_args": ("--runner",)}, "argument --runner: expected one argument$"),
        ({"beam_args": ("--direct_num_workers=x",)}, "_workers: invalid int value: 'x'$"),
    ],
)
def test_options_out_of_range_are_rejected_by_name(tmp_path, options, message, capsys):
    path = logs.write_csv(tmp_path / "log.csv", logs.log_rows(4))
    with pytest.raises(UserError, match=message):
        logs.run(tmp_path, path, **options)
    assert "usage" not in capsys.readouterr().err


def test_an_unknown_source_is_rejected_with_the_available_ones(tmp_path):
    options = BuildOptions("tables", "x", logs.write_schema(tmp_path), tmp_path / "data")
    with pytest.raises(UserError, match=r"unknown source 'tables'; available: .*search-logs"):
        build(options)


def test_a_failing_build_leaves_nothing(tmp_path):
    path = logs.write_csv(tmp_path / "log.csv", logs.log_rows(10))

    def fail(done, total, stage):
        if stage == "write":
            raise RuntimeError("no space left")

    with pytest.raises(RuntimeError, match="no space left"):
        logs.run(tmp_path, path, progress=fail)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log.csv", "schema.yaml"]


KILLED = """
import os, signal, sys
from tfr_moe.beam import BuildOptions, build

def kill(done, total, stage):
    if stage == "write":
        os.kill(os.getpid(), signal.SIGKILL)

build(BuildOptions("search-logs", sys.argv[1], sys.argv[2], sys.argv[3]), kill)
"""


def test_a_killed_build_leaves_no_data_set_and_can_be_run_again(tmp_path):
    path = logs.write_csv(tmp_path / "log.csv", logs.log_rows(10))
    schema = logs.write_schema(tmp_path)
    arguments = [str(path), str(schema), str(tmp_path / "data")]
    killed = subprocess.run([sys.executable, "-c", KILLED, *arguments], capture_output=True)
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "data").exists()
    manifest, _ = logs.run(tmp_path, path)
    assert manifest["rows"]["written"] == 30


def test_without_beam_the_cure_is_named():
    code = (
        "import sys\n"
        "sys.modules['apache_beam'] = None\n"
        "from tfr_moe.errors import UserError\n"
        "try:\n"
        "    import tfr_moe.beam.build\n"
        "except UserError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'tfr_moe[beam]'" in done.stdout
    assert done.stderr == ""
