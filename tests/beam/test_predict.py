from __future__ import annotations

import csv
import gzip
import json
import re
from collections import defaultdict

import numpy as np
import pytest
from rich.console import Console

from tests import tiny
from tfr_moe.baselines import open_run, train_baseline
from tfr_moe.cli.prediction import predict
from tfr_moe.config import make_config
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.errors import UserError
from tfr_moe.evaluation.scoring import score_dataset
from tfr_moe.serving.export import export_run
from tfr_moe.training import load_run, train

QUIET = Console(quiet=True)
LISTS = 20  # of tiny.lists(…, seed=3): the first of the test split


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    base = tmp_path_factory.mktemp("predict")
    data = tiny.write_data_folder(base / "data", train=40, validation=20, test=40)
    settings = {**tiny.SMALL, "num_epochs": 1, "model": "dnn"}
    train(data, base / "run", tiny.small_config(settings), QUIET)
    return base / "run"


@pytest.fixture(scope="module")
def data(run):
    return run.parent / "data"


@pytest.fixture(scope="module")
def expected(run, data):
    return evaluated(run, data)


def evaluated(run, data):
    """List id -> scores in the order of the list, as `evaluate` has them."""
    loaded = open_run(run)
    dataset = ElwcDatasetBuilder(DataFolder(data), 7).build_evaluation_dataset("test")
    return {
        name: scores[mask]
        for batch in score_dataset(loaded.score, dataset, loaded.schema)
        for name, scores, mask in zip(batch.list_ids, batch.scores, batch.mask, strict=True)
    }


def table_rows():
    """The test lists as a table without labels, in an order of their own."""
    rows = [
        {
            "query_id": name,
            **{k: "|".join(v) if isinstance(v, list) else v for k, v in context.items()},
            **{k: v for k, v in item.items() if k != "purchase"},
            "sku": f"{name}/{position}",
        }
        for name, context, items in tiny.lists(LISTS, 3)
        for position, item in enumerate(items)
    ]
    return [rows[at] for at in np.random.default_rng(0).permutation(len(rows))]


def write_table(path, rows):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def read(path):
    """List id -> [(item id, score)] best first; checks that ranks count from 1."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    result = defaultdict(list)
    for row in rows:
        result[row["list_id"]].append((row["item_id"], float(row["score"])))
        assert int(row["rank"]) == len(result[row["list_id"]])
    return result


def assert_scores_are(result, expected, lists):
    assert len(result) == lists
    for name, rows in result.items():
        assert [score for _, score in rows] == sorted((s for _, s in rows), reverse=True)
        by_place = {int(item.rsplit("/")[-1]): score for item, score in rows}
        scores = [by_place[position] for position in range(len(rows))]
        np.testing.assert_allclose(scores, expected[name], rtol=1e-5, atol=1e-6)


def test_scores_of_a_table_are_those_of_evaluate(run, expected, tmp_path):
    table = write_table(tmp_path / "rows.csv", table_rows())
    counts = predict(run, None, str(table), tmp_path / "s.csv", item_id="sku", batch_size=6)
    rows = len(table_rows())
    totals = {"read": rows, "written": rows, "rejected": 0, "cut": 0, "lists": LISTS, "rejects": {}}
    assert counts == totals
    assert_scores_are(read(tmp_path / "s.csv"), expected, LISTS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.csv", "s.csv"]


def test_no_rejects_of_an_earlier_table_stay_beside_the_scores(run, tmp_path):
    good, out = table_rows(), tmp_path / "s.csv"
    table = write_table(tmp_path / "rows.csv", [*good, {**good[0], "price": "dear"}])
    predict(run, None, str(table), out, item_id="sku")
    assert (tmp_path / "s.csv.rejects.jsonl").read_text().count("\n") == 1
    write_table(table, good)
    predict(run, None, str(table), out, item_id="sku", overwrite=True)
    assert not (tmp_path / "s.csv.rejects.jsonl").exists()


def test_trees_score_a_table_as_their_library(data, tmp_path):
    run, out = tmp_path / "run", tmp_path / "s.csv"
    parameters = {"num_iterations": 10, "min_data_in_leaf": 5, "num_leaves": 7}
    config = make_config({"model": "lambdamart", "library_parameters": parameters})
    train_baseline(data, run, config, QUIET)
    table = write_table(tmp_path / "rows.csv", table_rows())
    predict(run, None, str(table), out, item_id="sku")
    assert_scores_are(read(out), evaluated(run, data), LISTS)


def test_an_exported_model_gives_the_scores_of_its_run(run, data, expected, tmp_path):
    export_run(run, tmp_path / "models" / "shop", data, console=QUIET)
    table = write_table(tmp_path / "rows.csv", table_rows())
    out = tmp_path / "s.csv"
    predict(None, tmp_path / "models" / "shop", str(table), out, item_id="sku")
    assert_scores_are(read(out), expected, LISTS)


def test_a_run_of_tasks_is_ranked_by_their_combination_with_a_column_per_task(tmp_path):
    data = tiny.write_data_folder(tmp_path / "data", 20, 10, LISTS, schema=tiny.TASKS)
    tasks = {"click": {"score_weight": 1.0}, "purchase": {"score_weight": 5.0}}
    settings = {**tiny.SMALL, "num_epochs": 1, "model": "shared_bottom", "tasks": tasks}
    train(data, tmp_path / "run", tiny.small_config(settings), QUIET)
    table = str(write_table(tmp_path / "rows.csv", table_rows()))
    predict(tmp_path / "run", None, table, tmp_path / "s.csv", item_id="sku")
    loaded = load_run(tmp_path / "run")
    scores = defaultdict(dict)
    dataset = ElwcDatasetBuilder(DataFolder(data), 7).build_evaluation_dataset("test")
    for features, _, extras in dataset:
        outputs = loaded.served_model()(features)
        for at, name in enumerate(extras["query_id"].numpy()[:, 0]):
            for output, values in outputs.items():
                scores[name.decode()][output] = values.numpy()[at]
    with open(tmp_path / "s.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    names = ["score", "score_click", "score_purchase"]
    assert list(rows[0]) == ["list_id", "item_id", *names, "rank"]
    assert len(rows) == len(table_rows())
    for row in rows:
        expected = scores[row["list_id"]]
        at = int(row["item_id"].rsplit("/")[-1])
        actual = [float(row[name]) for name in names]
        wanted = [expected[f"scores{name.removeprefix('score')}"][at] for name in names]
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-6)
    export_run(tmp_path / "run", tmp_path / "models" / "shop", data, console=QUIET)
    predict(None, tmp_path / "models" / "shop", table, tmp_path / "again.csv", item_id="sku")
    assert (tmp_path / "again.csv").read_text() == (tmp_path / "s.csv").read_text()


def test_all_formats_and_another_runner_give_the_same_rows(run, tmp_path):
    from pyarrow import parquet

    table = str(write_table(tmp_path / "rows.csv", table_rows()))
    for name in ("s.csv", "s.csv.gz", "s.parquet"):
        predict(run, None, table, tmp_path / name, item_id="sku")
    text = (tmp_path / "s.csv").read_text()
    assert gzip.decompress((tmp_path / "s.csv.gz").read_bytes()).decode() == text
    rows = [
        (r["list_id"], r["item_id"], np.float32(r["score"]), int(r["rank"]))
        for r in csv.DictReader(text.splitlines())
    ]
    stored = parquet.read_table(tmp_path / "s.parquet").to_pylist()
    assert [(*list(r.values())[:2], np.float32(r["score"]), r["rank"]) for r in stored] == rows

    other = ["--runner=BundleBasedDirectRunner"]
    predict(run, None, table, tmp_path / "o.csv", item_id="sku", beam_args=other)
    assert {r[:2] for r in rows} == {
        (r["list_id"], r["item_id"]) for r in csv.DictReader((tmp_path / "o.csv").open())
    }


def test_the_command_prints_what_it_loads_and_what_it_wrote(run, run_python, tmp_path):
    table, out = write_table(tmp_path / "rows.csv", table_rows()), tmp_path / "scores.csv"
    arguments = ["predict", "--run", str(run), "--input", str(table), "--item-id", "sku"]
    done = run_python(f"from tfr_moe.cli import main; main({[*arguments, '--out', str(out)]!r})")
    assert done.returncode == 0
    rows = len(table_rows())
    # From C++ newer versions of TensorFlow greet whoever starts them, and nothing in Python can
    # stop it.
    greeting = re.compile(r"WARNING: All log messages before absl|[IW]\d{4} ")
    lines = [line for line in done.stderr.splitlines() if not greeting.match(line)]
    assert lines == [f"loading {run}", f"wrote {out}: {rows} of {rows} rows in {LISTS} lists"]
    assert done.stdout == ""


def test_invalid_rows_are_rejected_and_the_others_scored(run, expected, tmp_path):
    rows = table_rows()
    broken = [{**rows[0], "price": "cheap", "sku": "x"}, {**rows[0], "sku": ""}]
    table = write_table(tmp_path / "rows.csv", [*rows, *broken])
    counts = predict(run, None, str(table), tmp_path / "s.csv", item_id="sku")
    assert counts["read"] == len(rows) + 2 == counts["written"] + counts["rejected"]
    actual = [
        json.loads(line) for line in (tmp_path / "s.csv.rejects.jsonl").read_text().splitlines()
    ]
    assert [(r["line"], r["reason"]) for r in actual] == [
        (len(rows) + 2, "column 'price': expected a number, got 'cheap'"),
        (len(rows) + 3, "column 'sku': a value is required"),
    ]
    assert_scores_are(read(tmp_path / "s.csv"), expected, LISTS)


def test_what_can_not_work_is_rejected_in_one_line_and_leaves_nothing(run, tmp_path):
    table = str(write_table(tmp_path / "rows.csv", table_rows()))
    unnamed = [{name.replace("sku", "gtin"): row[name] for name in row} for row in table_rows()]
    unnamed_table = str(write_table(tmp_path / "unnamed.csv", unnamed))
    (tmp_path / "there.csv").write_text("old")
    before = sorted(path.name for path in tmp_path.iterdir())
    out = tmp_path / "s.csv"
    for message, arguments in (
        ("either --run or --model", {"run": None}),
        ("run .*no such run", {"run": tmp_path}),
        ("--model .* not an exported model", {"run": None, "model": tmp_path}),
        ("must end in .csv, .csv.gz, .parquet", {"out": tmp_path / "s.jsonl"}),
        ("exists already", {"out": tmp_path / "there.csv"}),
        ("rows.csv: is an input", {"out": tmp_path / "rows.csv", "overwrite": True}),
        ("missing column 'nope'", {"item_id": "nope"}),
        (
            r"--item-id is required: none of .*\(item_id, .*\) is among .*brand",
            {"item_id": None, "input_pattern": unnamed_table},
        ),
        ("no file matches", {"input_pattern": str(tmp_path / "*.jsonl")}),
        ("Beam arguments", {"beam_args": ["--runner=Nope"]}),
    ):
        given = {"run": run, "model": None, "input_pattern": table, "out": out, "item_id": "sku"}
        with pytest.raises(UserError, match=message) as caught:
            predict(**{**given, **arguments})
        assert "\n" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert (tmp_path / "there.csv").read_text() == "old"
