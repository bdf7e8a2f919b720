"""What real logs hold: every row is written, rejected with its reason, or cut with its reason."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

from tests.beam import logs
from tfr_moe.beam import sorted_groups
from tfr_moe.elwc.log_checks import ONE_ITEM
from tfr_moe.elwc.values import decode_list
from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema


def rejects(folder):
    return [
        json.loads(line)
        for path in sorted(folder.glob("rejects-*.jsonl"))
        for line in path.read_text().splitlines()
    ]


def decoded(folder, schema):
    """List id -> (context, items) of all records."""
    result = {}
    for record in logs.records(folder):
        context, items = decode_list(schema, record)
        from tensorflow_serving.apis import input_pb2

        proto = input_pb2.ExampleListWithContext.FromString(record)
        name = proto.context.features.feature["session"].bytes_list.value[0].decode()
        assert name not in result
        result[name] = context, items
    return result


def add_up(manifest, folder):
    rows = manifest["rows"]
    assert rows["read"] == rows["written"] + rows["rejected"] + rows["cut"]
    assert rows["rejected"] == len(rejects(folder)) == sum(manifest["rejects"].values())
    assert rows["cut"] == sum(manifest["cut"].values())
    assert rows["written"] == sum(split["items"] for split in manifest["splits"].values())


# ---------------------------------------------------------------------------------- what is in rows


@pytest.mark.parametrize("value", ["nan", "NaN", "inf", "-Infinity", "1e39", "1_000"])
def test_what_is_no_finite_number_is_rejected_by_column_and_line(tmp_path, value):
    rows = logs.log_rows(10)
    rows[4]["price"] = value
    manifest, folder = logs.run(tmp_path, logs.write_csv(tmp_path / "log.csv", rows))
    add_up(manifest, folder)
    assert manifest["rows"]["rejected"] == 1
    (reject,) = rejects(folder)
    assert reject["line"] == 6
    assert reject["reason"].startswith("column 'price': expected a ")
    assert value in reject["reason"]


def test_nan_in_parquet_is_a_missing_value(tmp_path):
    rows = logs.log_rows(10)
    rows[0]["price"] = float("nan")
    rows[3]["score"] = float("inf")
    manifest, folder = logs.run(tmp_path, logs.write_parquet(tmp_path / "log.parquet", rows))
    add_up(manifest, folder)
    assert sorted(r["reason"] for r in rejects(folder)) == [
        "column 'price': a value is required",
        "column 'score': expected a finite number, got inf",
    ]


@pytest.mark.parametrize("write", [logs.write_csv, logs.write_jsonl, logs.write_parquet])
def test_ids_beyond_2_to_the_63_stay_what_they_are(tmp_path, write):
    big = 2**63 + 11 if write is not logs.write_parquet else 2**63 - 11
    rows = [{**row, "item": big if row["position"] == 1 else 7} for row in logs.log_rows(10)]
    for number, row in enumerate(rows):
        row["session"] = 2**63 - 1 - number // 3
    kind = {"write_csv": "csv", "write_jsonl": "jsonl", "write_parquet": "parquet"}[write.__name__]
    manifest, folder = logs.run(tmp_path, write(tmp_path / f"log.{kind}", rows))
    add_up(manifest, folder)
    actual = decoded(folder, FeatureSchema.load(folder / "schema.json"))
    assert sorted(actual) == sorted(str(2**63 - 1 - number) for number in range(10))
    assert all(
        [item["item"] for item in items] == [str(big), "7", "7"] for _, items in actual.values()
    )
    assert str(big) in (folder / "vocabulary" / "item.txt").read_text().splitlines()


def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path):
    path = logs.write_csv(tmp_path / "log.csv", logs.log_rows(10))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    manifest, folder = logs.run(tmp_path, path)
    add_up(manifest, folder)
    assert manifest["rows"]["written"] == 30


def test_mixed_encodings_lose_only_the_rows_that_are_no_utf8(tmp_path):
    rows = logs.log_rows(10)
    rows[0]["item"], rows[1]["item"] = "café", "thé"
    path = logs.write_csv(tmp_path / "log.csv", rows)
    path.write_bytes(path.read_bytes().replace("café".encode(), "café".encode("latin-1")))
    manifest, folder = logs.run(tmp_path, path)
    add_up(manifest, folder)
    assert manifest["rejects"] == {"not valid UTF-8": 1}
    assert rejects(folder)[0]["line"] == 2
    assert "thé" in (folder / "vocabulary" / "item.txt").read_text(encoding="utf-8")


def test_a_category_that_is_missing_from_the_tree_is_out_of_vocabulary_and_stays(tmp_path):
    rows = logs.log_rows(10)
    for row in rows[:3]:
        row["sub"] = ""
    for row in rows[3:6]:
        row["top"] = ""
    manifest, folder = logs.run(tmp_path, logs.write_csv(tmp_path / "log.csv", rows))
    add_up(manifest, folder)
    assert manifest["rows"]["written"] == 30
    words = (folder / "vocabulary" / "sub.txt").read_text().splitlines()
    assert " > c1" in words  # a known sub-category of an unknown top category is a key of its own
    assert not any(word.endswith("> ") for word in words)


def test_lists_of_one_item_and_lists_of_one_moment(tmp_path):
    rows = [{**row, "time": 1000} for row in logs.log_rows(12, 1)]
    manifest, folder = logs.run(tmp_path, logs.write_csv(tmp_path / "log.csv", rows))
    add_up(manifest, folder)
    # One moment lies on one side of every bound: all lists are for training.
    assert manifest["splits"]["train"]["lists"] == 12
    why = "is empty: the lists have too few different times; split by hash"
    empty = [f"the validation split {why}", f"the test split {why}"]
    assert manifest["warnings"] == [*empty, ONE_ITEM]
    assert manifest["list_length"] == {"min": 1, "mean": 1.0, "max": 1}


def test_labels_that_are_never_above_0_are_warned_of(tmp_path):
    rows = [{**row, "purchase": 0} for row in logs.log_rows(12)]
    manifest, _ = logs.run(tmp_path, logs.write_csv(tmp_path / "log.csv", rows))
    expected = "no item has a label above 0: there is nothing to learn from"
    assert expected in manifest["warnings"]


def test_a_file_that_is_there_twice_is_told(tmp_path):
    once = logs.write_csv(tmp_path / "log-0.csv", logs.log_rows(40, 4))
    manifest, _ = logs.run(tmp_path, once, "once")
    assert not [text for text in manifest["warnings"] if "twice" in text]
    shutil.copy(once, tmp_path / "log-1.csv")
    manifest, folder = logs.run(tmp_path, tmp_path / "log-*.csv", "both")
    add_up(manifest, folder)
    actual = [text for text in manifest["warnings"] if "twice" in text]
    assert actual == [
        "40 of 40 lists have every item twice, equal in all columns: is the input read twice?"
    ]


def test_an_empty_file_among_others_is_rejected_and_an_empty_body_is_not(tmp_path):
    logs.write_csv(tmp_path / "log-0.csv", logs.log_rows(10))
    header = (tmp_path / "log-0.csv").read_text().splitlines()[0]
    (tmp_path / "log-1.csv").write_text(header + "\n")
    manifest, folder = logs.run(tmp_path, tmp_path / "log-*.csv")
    add_up(manifest, folder)
    assert manifest["rows"]["written"] == 30
    (tmp_path / "log-1.csv").write_text("")
    with pytest.raises(UserError, match=r"log-1.csv: the file is empty"):
        logs.run(tmp_path, tmp_path / "log-*.csv", "other")


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_broken_gzip_is_rejected_by_name_and_leaves_nothing(tmp_path, damage):
    path = logs.write_csv(tmp_path / "log.csv.gz", logs.log_rows(3000))
    data = bytearray(path.read_bytes())
    if damage == "cut":
        del data[-9:]
    else:
        data[-6] ^= 0xFF  # the checksum at the end
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"log.csv.gz: (the gzip file is truncated|corrupt gzip)"):
        logs.run(tmp_path, path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log.csv.gz", "schema.yaml"]


# --------------------------------------------------------------------------------- many runs, kills


def test_sorted_runs_on_disk_change_nothing(tmp_path, monkeypatch):
    rows = logs.log_rows(40)
    rows += [{**rows[0], "session": "hot", "position": p} for p in range(300, 0, -1)]
    shuffled = [rows[at] for at in np.random.default_rng(0).permutation(len(rows))]
    shuffled[5]["score"] = "?"
    path = logs.write_csv(tmp_path / "log.csv", shuffled)
    whole, one = logs.run(tmp_path, path, "one", max_list_size=4)
    monkeypatch.setattr(sorted_groups, "RUN_BYTES", 2000)
    spilled, two = logs.run(tmp_path, path, "two", max_list_size=4)
    elsewhere, three = logs.run(
        tmp_path, path, "three", max_list_size=4, beam_args=("--runner=BundleBasedDirectRunner",)
    )
    divided, four = logs.run(
        tmp_path, path, "four", max_list_size=4, beam_args=("--direct_num_workers=3",)
    )
    assert logs.tree(one) == logs.tree(two) == logs.tree(three) == logs.tree(four)
    assert whole["rows"] == spilled["rows"] == elsewhere["rows"] == divided["rows"]
    assert whole["cut"] == {"list too long": 296 - ("hot" in str(rejects(one)))}
    add_up(spilled, two)


def test_groups_of_all_runs_come_in_order_with_their_values(tmp_path, monkeypatch):
    import apache_beam as beam

    from tfr_moe.beam.runner import running

    monkeypatch.setattr(sorted_groups, "RUN_BYTES", 1000)
    entries = [(f"k{number % 7}", number) for number in range(200)]
    written = tmp_path / "found.json"

    def use(key, values):
        assert len(list(tmp_path.glob(".runs-*/*"))) > 10
        with open(written, "a") as file:
            file.write(json.dumps([key, list(values)]) + "\n")

    with running((), tmp_path) as pipeline:
        _ = pipeline | beam.Create(entries) | sorted_groups.use_groups(use, lambda value: value)
    assert list(tmp_path.iterdir()) == [written]
    actual = [json.loads(line) for line in written.read_text().splitlines()]
    assert actual == [[f"k{k}", list(range(k, 200, 7))] for k in range(7)]


KILLED = """
import os, signal, sys
from tfr_moe.beam.transforms import make_lists
from tfr_moe.beam import BuildOptions, build

def kill(runs, order):
    os.kill(os.getpid(), signal.SIGKILL)

make_lists.groups = kill
build(BuildOptions("search-logs", *sys.argv[1:4]))
"""


def test_a_build_killed_between_the_stages_leaves_no_folder_and_repeats_alike(tmp_path):
    path = logs.write_csv(tmp_path / "log.csv", logs.log_rows(30))
    _, before = logs.run(tmp_path, path, "before")
    arguments = [str(path), str(tmp_path / "schema.yaml"), str(tmp_path / "data")]
    killed = subprocess.run([sys.executable, "-c", KILLED, *arguments], capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (tmp_path / "data").exists()
    _, after = logs.run(tmp_path, path)
    assert logs.tree(before) == logs.tree(after)


def test_a_table_with_quotes_line_breaks_and_bars_in_ids_survives(tmp_path):
    rows = logs.log_rows(10)
    rows[0]["item"], rows[1]["item"] = 'say "hi", you', "two\nlines"
    manifest, folder = logs.run(tmp_path, logs.write_csv(tmp_path / "log.csv", rows))
    add_up(manifest, folder)
    actual = decoded(folder, FeatureSchema.load(folder / "schema.json"))
    assert [item["item"] for item in actual["s0"][1]] == [
        'say "hi", you',
        "two\nlines",
        rows[2]["item"],
    ]


def test_a_gzip_of_several_members_is_read_whole(tmp_path):
    rows = logs.log_rows(20)
    path = logs.write_csv(tmp_path / "log.csv.gz", rows[:30])
    with gzip.open(path, "at", newline="") as file:
        csv.DictWriter(file, list(rows[0])).writerows(rows[30:])
    manifest, folder = logs.run(tmp_path, path)
    add_up(manifest, folder)
    assert manifest["rows"]["written"] == 60


def test_the_vocabulary_of_the_child_names_a_parent_that_has_none(tmp_path):
    features = [dict(feature) for feature in logs.SCHEMA["features"]]
    features[0]["hash_buckets"] = 10
    path = logs.write_csv(tmp_path / "log.csv", logs.log_rows(20))
    _, folder = logs.run(tmp_path, path, schema={"features": features})
    assert not (folder / "vocabulary" / "top.txt").exists()
    words = (folder / "vocabulary" / "sub.txt").read_text().splitlines()
    assert words == ["Books > c1", "Books > c3", "Foods > c0", "Foods > c2"]
