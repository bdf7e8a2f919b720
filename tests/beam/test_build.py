"""A build's lists, splits, vocabularies, statistics and records are equal however it is run."""

import gzip
import json
import math
import subprocess
import sys

import numpy as np
import pytest

from tests.beam import logs
from tfr_moe.beam import BuildOptions, build
from tfr_moe.elwc.wire import write_records
from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema


def rejects(folder):
    return [
        json.loads(line)
        for path in sorted(folder.glob("rejects-*.jsonl"))
        for line in path.read_text().splitlines()
    ]


def test_counts_add_up_and_the_folder_is_the_data_contract(tmp_path):
    logs.write_csv(tmp_path / "log.csv", logs.log_rows(20))
    manifest, folder = logs.run(tmp_path, tmp_path / "log.csv", num_shards=2)
    assert manifest["rows"] == {"read": 60, "written": 60, "rejected": 0, "cut": 0}
    sizes = {
        name: (s["lists"], s["items"], s["positives"]) for name, s in manifest["splits"].items()
    }
    assert sizes == {"train": (16, 48, 16), "validation": (2, 6, 2), "test": (2, 6, 2)}
    assert manifest["list_length"] == {"min": 3, "mean": 3.0, "max": 3}
    assert manifest == json.loads((folder / "manifest.json").read_text())
    assert sorted(logs.tree(folder)) == [
        "schema.json",
        "statistics.json",
        "test-00000-of-00001.tfrecord.gz",
        "train-00000-of-00002.tfrecord.gz",
        "train-00001-of-00002.tfrecord.gz",
        "validation-00000-of-00001.tfrecord.gz",
        "vocabulary/history.txt",
        "vocabulary/item.txt",
        "vocabulary/sub.txt",
        "vocabulary/top.txt",
    ]
    assert FeatureSchema.load(folder / "schema.json") == FeatureSchema.load(
        tmp_path / "schema.yaml"
    )
    assert len(list(logs.records(folder))) == 20


def test_time_split_has_no_overlap_in_time(tmp_path):
    rows = logs.log_rows(20)
    logs.write_csv(tmp_path / "log.csv", rows[::-1])
    manifest, folder = logs.run(tmp_path, tmp_path / "log.csv")
    times = {
        split: [1000 + int(name[1:]) for name in logs.list_ids(folder, split)]
        for split in ("train", "validation", "test")
    }
    assert sorted(times["train"]) == list(range(1000, 1016))
    assert sorted(times["validation"]) == [1016, 1017]
    assert sorted(times["test"]) == [1018, 1019]
    assert manifest["split"] == {"by": "time", "bounds": {"validation": 1016.0, "test": 1018.0}}


def test_hash_split_keeps_a_list_where_it_is_when_others_come(tmp_path):
    logs.write_csv(tmp_path / "few.csv", logs.log_rows(40, 2))
    logs.write_csv(tmp_path / "many.csv", logs.log_rows(80, 2))
    _, few = logs.run(tmp_path, tmp_path / "few.csv", "few", split="hash", validation_fraction=0.3)
    _, many = logs.run(
        tmp_path, tmp_path / "many.csv", "many", split="hash", validation_fraction=0.3
    )
    actual = []
    for split in ("train", "validation", "test"):
        before, after = set(logs.list_ids(few, split)), set(logs.list_ids(many, split))
        assert before == {name for name in after if int(name[1:]) < 40}
        actual += after
    assert sorted(actual) == sorted(f"s{s}" for s in range(80))
    assert logs.list_ids(many, "validation")


def test_vocabularies_and_statistics_come_from_training_alone(tmp_path):
    rows = logs.log_rows(20)
    for row in rows[-12:]:  # the lists of validation and test
        row.update(item="late", sub="late", price=1e6, age=99.0, history="late")
    logs.write_csv(tmp_path / "log.csv", rows)
    _, folder = logs.run(tmp_path, tmp_path / "log.csv")
    for path in (folder / "vocabulary").iterdir():
        assert "late" not in path.read_text()
    statistics = json.loads((folder / "statistics.json").read_text())
    prices = np.log1p([1.5, 3.0, 4.5])
    assert statistics["example"]["price"] == pytest.approx(
        {
            "count": 48,
            "mean": prices.mean(),
            "std": prices.std(),
            "min": math.log(2.5),
            "max": math.log(5.5),
        }
    )
    # Ages 20.5 ... 35.5, one a list: mean 28, variance (16^2 - 1) / 12.
    assert statistics["context"]["age"] == pytest.approx(
        {"count": 16, "mean": 28.0, "std": math.sqrt(255 / 12), "min": 20.5, "max": 35.5}
    )
    assert list(statistics["example"]) == ["price", "score"]


def test_vocabularies_are_sorted_by_count_then_text_and_pair_the_child(tmp_path):
    logs.write_csv(tmp_path / "log.csv", logs.log_rows(20))
    features = [dict(f) for f in logs.SCHEMA["features"]]
    features[3]["min_count"] = 8
    features[4]["max_vocabulary"] = 3
    _, folder = logs.run(tmp_path, tmp_path / "log.csv", schema={"features": features})

    def vocabulary(name):
        return (folder / "vocabulary" / f"{name}.txt").read_text().splitlines()

    # Training sessions 0 ... 15, 4 of each sub-category, 8 of each top category.
    assert vocabulary("top") == ["Books", "Foods"]
    assert vocabulary("sub") == ["Books > c1", "Books > c3", "Foods > c0", "Foods > c2"]
    # Items (s + i) mod 7 for s < 16: i2 and i3 seven times... counted here by the slow way.
    counts = {}
    for row in logs.log_rows(16):
        counts[row["item"]] = counts.get(row["item"], 0) + 1
    assert vocabulary("item") == sorted(counts, key=lambda name: (-counts[name], name))[:3]
    # Histories hold the last 3 of i0 ... i(s mod 5 - 1): i1 9 times, i2 6, i0 9, i3 3.
    assert vocabulary("history") == ["i0", "i1"]


def test_records_read_back_by_tensorflow_ranking_are_the_rows(tmp_path):
    from tfr_moe._compat import tf, tfr

    rows = logs.log_rows(20)
    logs.write_csv(tmp_path / "log.csv", rows)
    _, folder = logs.run(tmp_path, tmp_path / "log.csv")
    schema = FeatureSchema.load(folder / "schema.json")
    files = sorted(map(str, folder.glob("*.tfrecord.gz")))
    data = tf.data.TFRecordDataset(files, compression_type="GZIP").batch(20)
    serialized = data.get_single_element()
    parsed = tfr.data.parse_from_example_list(
        serialized,
        context_feature_spec={
            **schema.feature_spec("context"),
            **schema.role_spec("context"),
        },
        example_feature_spec={
            **schema.feature_spec("example"),
            **schema.role_spec("example"),
        },
        list_size=4,
        mask_feature_name="mask",
    )
    parsed = {name: value.numpy() for name, value in parsed.items()}
    by_session = {}
    for row in rows:
        by_session.setdefault(row["session"], []).append(row)
    assert parsed["mask"].sum(axis=1).tolist() == [3] * 20
    for b, name in enumerate(parsed["session"][:, 0]):
        expected = by_session.pop(name.decode())
        first = expected[0]
        assert parsed["sub"][b, 0] == first["sub"].encode()
        assert parsed["context_numeric"][b].tolist() == [first["age"]]
        history = [text.decode() for text in parsed["history"][b] if text]
        assert history == first["history"].split("|")[-3:] or not first["history"]
        for i, row in enumerate(expected):
            assert parsed["item"][b, i, 0] == row["item"].encode()
            assert parsed["example_numeric"][b, i].tolist() == [row["price"], row["score"]]
            assert parsed["position"][b, i, 0] == row["position"]
            assert parsed["purchase"][b, i, 0] == row["purchase"]
        assert parsed["purchase"][b, 3, 0] == -1.0
    assert not by_session


def test_all_formats_give_the_same_records(tmp_path):
    rows = logs.log_rows(20)
    formats = {
        ".csv": logs.write_csv,
        ".csv.gz": logs.write_csv,
        ".jsonl": logs.write_jsonl,
        ".json.gz": logs.write_jsonl,
        ".parquet": logs.write_parquet,
    }
    for part, (ending, write) in enumerate(formats.items()):
        write(tmp_path / f"part{ending}", rows[part :: len(formats)])
    _, parts = logs.run(tmp_path, tmp_path / "part.*", "parts")
    _, whole = logs.run(tmp_path, logs.write_csv(tmp_path / "whole.csv", rows), "whole")
    assert logs.tree(parts) == logs.tree(whole)


def test_same_input_and_seed_give_the_same_bytes_however_rows_are_spread(tmp_path):
    rows = logs.log_rows(20)
    logs.write_csv(tmp_path / "whole.csv", rows)
    shuffled = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]
    for part in range(3):
        logs.write_csv(tmp_path / f"part-{part}.csv", shuffled[part::3])
    _, whole = logs.run(tmp_path, tmp_path / "whole.csv", "a")
    _, parts = logs.run(tmp_path, tmp_path / "part-*.csv", "b")
    _, other = logs.run(tmp_path, tmp_path / "whole.csv", "c", seed=1)
    assert logs.tree(whole) == logs.tree(parts)
    assert logs.tree(whole) != logs.tree(other)
    assert sorted(logs.records(whole)) == sorted(logs.records(other))


def test_a_bad_row_goes_to_the_rejects_with_line_and_reason(tmp_path):
    rows = logs.log_rows(10)
    rows[4]["price"] = "cheap"
    rows[7]["session"] = ""
    rows[9]["purchase"] = -1
    path = logs.write_csv(tmp_path / "log.csv", rows)
    manifest, folder = logs.run(tmp_path, path)
    assert manifest["rows"] == {"read": 30, "written": 27, "rejected": 3, "cut": 0}
    assert manifest["rejects"] == {
        "column 'price': expected a number": 1,
        "column 'purchase': must be >= 0": 1,
        "column 'session': a value is required": 1,
    }
    actual = rejects(folder)
    assert [r["line"] for r in actual] == [6, 9, 11]
    assert {r["file"] for r in actual} == {str(path)}
    assert actual[0]["reason"] == "column 'price': expected a number, got 'cheap'"
    assert actual[0]["row"]["item"] == rows[4]["item"]


def test_longer_lists_keep_the_items_shown_first_and_count_the_others(tmp_path):
    rows = logs.log_rows(10, 3) + [
        {**logs.log_rows(1, 1)[0], "session": "hot", "position": p, "item": f"h{p}"}
        for p in range(500, 0, -1)
    ]
    logs.write_csv(tmp_path / "log.csv", rows)
    manifest, folder = logs.run(tmp_path, tmp_path / "log.csv", max_list_size=5)
    assert manifest["rows"] == {"read": 530, "written": 35, "rejected": 0, "cut": 495}
    assert manifest["cut"] == {"list too long": 495}
    assert manifest["list_length"]["max"] == 5
    long_lists = [r for r in logs.records(folder) if b"hot" in r]
    assert len(long_lists) == 1
    assert [i for i in range(1, 501) if f"h{i}\n".encode() in _items(long_lists[0])] == [
        1,
        2,
        3,
        4,
        5,
    ]


def _items(record):
    from tensorflow_serving.apis import input_pb2

    proto = input_pb2.ExampleListWithContext.FromString(record)
    return b"".join(e.features.feature["item"].bytes_list.value[0] + b"\n" for e in proto.examples)


def test_lists_without_a_positive_are_kept(tmp_path):
    rows = [{**row, "purchase": 0} for row in logs.log_rows(10)]
    logs.write_csv(tmp_path / "log.csv", rows)
    manifest, _ = logs.run(tmp_path, tmp_path / "log.csv")
    assert manifest["rows"]["written"] == 30
    assert manifest["splits"]["train"]["positives"] == 0


def test_the_first_of_several_contexts_is_kept_and_the_list_counted(tmp_path):
    rows = logs.log_rows(10)
    rows[0]["position"], rows[2]["position"] = 3, 1
    rows[2]["age"] = 77.0
    logs.write_csv(tmp_path / "log.csv", rows)
    manifest, folder = logs.run(tmp_path, tmp_path / "log.csv")
    assert manifest["context_conflicts"] == 1
    warning = "1 lists have rows with different context (1 age); the first row wins"
    assert manifest["warnings"][0] == warning
    with pytest.raises(UserError) as caught:
        logs.run(tmp_path, tmp_path / "log.csv", out="strict", max_lost=0.09)
    assert str(caught.value) == (
        "1 of 10 lists have rows with different context (10.0%), more than max_lost=0.09 allows: "
        "1 age"
    )
    ages = json.loads((folder / "statistics.json").read_text())["context"]["age"]
    assert ages["min"] == 20.5 and ages["max"] < 77.0


def test_a_build_stops_where_much_is_rejected_or_cut(tmp_path):
    rows = logs.log_rows(10)
    rows[4]["price"], rows[5]["price"], rows[8]["score"] = "", "cheap", "9,5"
    path = logs.write_csv(tmp_path / "log.csv", rows)
    with pytest.raises(UserError) as caught:
        logs.run(tmp_path, path, max_lost=0.05)
    assert str(caught.value) == (
        "3 of 30 rows are rejected (10.0%), more than max_lost=0.05 allows: 1 column 'price': a "
        "value is required, 1 column 'price': expected a number, 1 column 'score': expected a "
        f"number; the first is {path}, line 6"
    )
    assert not (tmp_path / "data").exists()
    rows = logs.log_rows(10)
    for row in rows:
        row["purchase"] = int(row["position"] == (3 if row["session"] == "s1" else 1))
    path = logs.write_csv(tmp_path / "log.csv", rows)
    with pytest.raises(UserError, match=r"^1 of 10 positives are cut .*: max_list_size is 2$"):
        logs.run(tmp_path, path, max_lost=0.05, max_list_size=2)
    manifest, _ = logs.run(tmp_path, path, max_lost=0.1, max_list_size=2)
    assert (manifest["cut_positives"], manifest["cut"]) == (1, {"list too long": 10})


def test_an_id_with_a_line_break_is_out_of_vocabulary_and_counted(tmp_path):
    rows = logs.log_rows(10)
    rows[0]["item"] = "two\nlines"
    logs.write_csv(tmp_path / "log.csv", rows)
    manifest, folder = logs.run(tmp_path, tmp_path / "log.csv")
    assert manifest["ids_with_line_breaks"] == 1
    assert "two" not in (folder / "vocabulary" / "item.txt").read_text()


def test_synthetic_logs_build(tmp_path):
    from tfr_moe.synthetic import SearchLogOptions, generate

    generate(tmp_path / "logs", SearchLogOptions(sessions=100, num_files=2))
    seen = []
    manifest = build(
        BuildOptions(
            "search-logs",
            f"{tmp_path}/logs/logs-*",
            tmp_path / "logs" / "schema.yaml",
            tmp_path / "data",
        ),
        progress=lambda *at: seen.append(at),
    )
    assert sum(split["lists"] for split in manifest["splits"].values()) == 100
    assert manifest["rows"]["read"] == manifest["rows"]["written"]
    size = sum(path.stat().st_size for path in (tmp_path / "logs").glob("logs-*"))
    assert (size, size, "read") in seen
    assert seen[-1] == (10, 10, "write")


def test_another_runner_gives_the_same_records(tmp_path):
    path = logs.write_csv(tmp_path / "log.csv", logs.log_rows(20))
    _, one = logs.run(tmp_path, path, "one")
    _, two = logs.run(tmp_path, path, "two", beam_args=("--runner=BundleBasedDirectRunner",))
    assert logs.tree(one) == logs.tree(two)


def test_importing_the_pipeline_imports_no_keras():
    # Encoding does load TensorFlow, whose own start imports a part of Keras.
    code = (
        "import sys, tfr_moe.beam.build, tfr_moe.beam.sources.search_logs\n"
        "print([name for name in ('keras', 'tf_keras', 'tensorflow') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_tensorflow_reads_what_write_records_wrote(tmp_path):
    from tfr_moe._compat import tf

    written = [b"", b"one", bytes(range(256)) * 1000]
    write_records(tmp_path / "x.tfrecord.gz", written)
    read = tf.data.TFRecordDataset(str(tmp_path / "x.tfrecord.gz"), compression_type="GZIP")
    assert [record.numpy() for record in read] == written
    assert [path.name for path in tmp_path.iterdir()] == ["x.tfrecord.gz"]
    assert gzip.decompress((tmp_path / "x.tfrecord.gz").read_bytes())[:8] == bytes(8)


def test_a_column_chooses_the_split(tmp_path):
    rows = logs.log_rows(10)
    for row in rows:
        number = int(row["session"][1:])
        row["part"] = "test" if number < 2 else "validation" if number == 2 else "train"
    rows[4]["part"] = "train"  # s1, whose first row is for the test
    rows[-1]["part"] = "dev"
    path = logs.write_csv(tmp_path / "log.csv", rows)
    manifest, folder = logs.run(tmp_path, path, split_column="part")
    assert sorted(logs.list_ids(folder, "test")) == ["s0", "s1"]
    assert logs.list_ids(folder, "validation") == ["s2"]
    assert len(logs.list_ids(folder, "train")) == 7
    assert manifest["rejects"] == {"column 'part': expected one of train, validation, test": 1}
    assert manifest["conflicting_features"] == {"split": 1}
    assert manifest["split"] == {"by": "column", "bounds": None}
    with pytest.raises(
        UserError, match=r"^split time: cannot be combined with split_column='part'$"
    ):
        logs.run(tmp_path, path, out="other", split_column="part", split="time")


def test_test_lists_with_the_tables_of_another_data_set(tmp_path):
    _, data = logs.run(tmp_path, logs.write_csv(tmp_path / "log.csv", logs.log_rows(10)))
    later = logs.write_csv(tmp_path / "later.csv", logs.log_rows(4, items=2))
    options = BuildOptions("search-logs", str(later), None, tmp_path / "later", like=data)
    manifest = build(options)
    assert {name: part["lists"] for name, part in manifest["splits"].items()} == {
        "train": 0,
        "validation": 0,
        "test": 4,
    }
    assert manifest["warnings"] == []
    for name in ("schema.json", "statistics.json", "vocabulary/item.txt", "vocabulary/sub.txt"):
        assert (tmp_path / "later" / name).read_bytes() == (data / name).read_bytes()
    with pytest.raises(UserError, match=r"^schema: cannot be combined with like=data$"):
        BuildOptions("search-logs", "x", "schema.yaml", "out", like="data")
