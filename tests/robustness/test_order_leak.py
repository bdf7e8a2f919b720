"""A record order that reveals which items are relevant is reported."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from tests.robustness.test_data_identity import SCHEMA
from tests.tiny import small_config
from tfr_moe.baselines import train_baseline
from tfr_moe.beam import BuildOptions, build
from tfr_moe.data.frames import training_data
from tfr_moe.elwc.log_checks import UNIT, OrderSums
from tfr_moe.evaluation.evaluate import evaluate_runs
from tfr_moe.schema import FeatureSchema


def sums(*lists: list[int]) -> OrderSums:
    order = OrderSums()
    flat = np.array([bool(value) for values in lists for value in values])
    order.add(flat, np.cumsum([0, *map(len, lists)]))
    return order


def test_shares_worked_out_by_hand():
    """Pairs in order: 3 of 3; 0 of 2; of (0, 1), (0, 3), (2, 1), (2, 3) all but (2, 1)."""
    order = sums([1, 0, 0, 0], [0, 0, 1], [1, 0, 1, 0], [0, 0], [1], [])
    assert order.lists == 3
    assert order.shares == round((1 + 0 + 0.75) * UNIT)
    assert order.squares == round((1 + 0 + 0.5625) * UNIT)


def test_lists_added_together_count_as_lists_added_one_by_one():
    rng = np.random.default_rng(3)
    lists = [(rng.random(size) < 0.3).tolist() for size in rng.integers(0, 12, 500)]
    one_by_one = OrderSums()
    for relevant in lists:
        one_by_one.add(np.array(relevant, bool), np.array([0, len(relevant)]))
    assert sums(*lists) == one_by_one


def test_a_random_order_is_not_reported_and_a_telling_one_is():
    rng = np.random.default_rng(0)
    random = [rng.permutation([1, 0, 0, 0, 0]).tolist() for _ in range(5000)]
    assert sums(*random).warning() is None
    assert sums(*[[1, 0]] * 99).warning() is None
    assert "probability 1.000 instead of 0.5" in (sums(*[[1, 0]] * 100).warning() or "")
    assert "probability 0.000 instead of 0.5" in (sums(*[[0, 1]] * 100).warning() or "")
    leaking = random + [[1, 0, 0, 0, 0]] * 500
    assert "in 5500 lists" in (sums(*leaking).warning() or "")


def rows(relevant_first: bool) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    table = []
    for number in range(300):
        clicked = 0 if relevant_first else rng.integers(4)
        table += [(f"q{number}", f"i{rng.integers(7)}", rng.random(), i == clicked)
                  for i in range(4)]  # fmt: skip
    frame = pd.DataFrame(table, columns=["query", "item", "price", "click"])
    return frame.assign(click=frame.click.astype(int))


@pytest.fixture(scope="module", params=[True, False], ids=["relevant-first", "random"])
def case(request, tmp_path_factory) -> tuple[bool, Path]:
    folder = tmp_path_factory.mktemp("order")
    rows(request.param).to_csv(folder / "log.csv", index=False, quoting=csv.QUOTE_MINIMAL)
    (folder / "schema.yaml").write_text(SCHEMA)
    return request.param, folder


def test_build_and_evaluate_report_it(case):
    leaks, folder = case
    source = ("search-logs", str(folder / "log.csv"), folder / "schema.yaml", folder / "data")
    manifest = build(BuildOptions(*source))
    actual = [line for line in manifest["warnings"] if "reveals relevance: in 300 lists" in line]
    assert len(actual) == leaks
    few = {"library_parameters": {"num_boost_round": 2}}
    train_baseline(folder / "data", folder / "run", small_config({"model": "lambdamart"}, **few))
    text = io.StringIO()
    evaluate_runs(folder / "data", [folder / "run"], split="train", console=Console(file=text))
    assert text.getvalue().count("warning: split train: the order of the items reveals") == leaks


def test_frames_report_it(case):
    leaks, folder = case
    schema = FeatureSchema.load(folder / "schema.yaml")
    lines: list[str] = []
    training_data(rows(leaks), None, schema, folder / "frame", log=lines.append)
    assert len([line for line in lines if "reveals relevance" in line]) == leaks
