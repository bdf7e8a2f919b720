"""`predict` on a slice of The Complete Journey, from table and records, against `evaluate`."""

from __future__ import annotations

import csv
import importlib.util
from collections import Counter, defaultdict

import numpy as np
import pytest
from rich.console import Console

from tests import tiny
from tests.beam.test_predict import read, write_table
from tfr_moe.beam import BuildOptions, build
from tfr_moe.cli.prediction import predict
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.evaluation.scoring import score_dataset
from tfr_moe.training import load_run, train

SALES = 6_000


@pytest.mark.slow
def test_scores_of_the_complete_journey_are_those_of_evaluate(real_data, repository, tmp_path):
    folder = real_data / "complete_journey"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    example = repository / "experiments" / "datasets" / "complete_journey"
    spec = importlib.util.spec_from_file_location("prepare_journey", example / "prepare.py")
    prepare = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(prepare)
    products = prepare.read_products(folder / "products.csv.gz")
    sales = prepare.read_sales(folder / "transactions.csv.gz", products, Counter())[:SALES]
    rows = list(prepare.rows(sales, products, {}, 1e12, 25, 0, Counter()))
    table = write_table(tmp_path / "rows.csv", rows)
    schema = example / "schema.yaml"
    manifest = build(BuildOptions("search-logs", str(table), schema, tmp_path / "data"))
    assert manifest["rows"] == {"read": len(rows), "written": len(rows), "rejected": 0, "cut": 0}

    run = tmp_path / "run"
    settings = {**tiny.SMALL, "num_epochs": 1, "batch_size": 256, "model": "adv_hsc_moe"}
    train(tmp_path / "data", run, tiny.small_config(settings), Console(quiet=True))
    loaded = load_run(run)
    data = DataFolder(tmp_path / "data")
    dataset = ElwcDatasetBuilder(data).build_evaluation_dataset("test")
    expected = {
        name: scores[mask]
        for batch in score_dataset(loaded.model, dataset, loaded.schema)
        for name, scores, mask in zip(batch.list_ids, batch.scores, batch.mask, strict=True)
    }
    assert len(expected) == manifest["splits"]["test"]["lists"] > 100

    predict(run, None, str(table), tmp_path / "table.csv")
    items = defaultdict(list)
    with open(table, newline="") as file:
        for row in csv.DictReader(file):
            items[row["list_id"]].append(row["product_id"])
    of_table = read(tmp_path / "table.csv")
    assert set(expected) < set(of_table)
    assert sum(map(len, of_table.values())) == len(rows)
    for name, scores in expected.items():
        by_item = dict(of_table[name])
        assert len(by_item) == len(scores)
        written = [by_item[item] for item in items[name]]
        np.testing.assert_allclose(written, scores, rtol=1e-5, atol=1e-5)
