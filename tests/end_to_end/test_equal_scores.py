"""Transforms and clicked categories: frames, the command line, trees and exports agree."""

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from tfr_moe import Ranker
from tfr_moe._compat import tf
from tfr_moe.baselines import train_any
from tfr_moe.beam import BuildOptions, build
from tfr_moe.cli.prediction import predict
from tfr_moe.config import make_config
from tfr_moe.data import DataFolder
from tfr_moe.evaluation import evaluate_run, summarize
from tfr_moe.schema import FeatureSchema
from tfr_moe.serving.client.request import RequestEncoder
from tfr_moe.training import train
from tfr_moe.utils.io import read_json

ID = {"scope": "example", "kind": "categorical"}
NUMBER = {"scope": "example", "kind": "numeric"}
SCHEMA = FeatureSchema.model_validate(
    {
        "list_id": "search",
        "labels": ["clicked"],
        "position": "position",
        "hierarchy": {
            "child": "item.sub",
            "parent": "item.top",
            "from": "clicked_in_training",
            "query": "query",
        },
        "features": [
            {"name": "query", "scope": "context", "kind": "categorical"},
            {"name": "budget", "scope": "context", "kind": "numeric", "transform": "quantile"},
            {"name": "top", **ID},
            {"name": "sub", **ID},
            {"name": "sales", **NUMBER, "transform": "log1p"},
            {"name": "price", **NUMBER, "ratio": "usual", "clip": [0, 3], "transform": "quantile"},
            {"name": "usual", **NUMBER, "bucketize": [0.5, 20, 40]},
            {"name": "stock", **NUMBER, "transform": "quantile", "missing": "median"},
            {"name": "age", **NUMBER, "ratio": "stock", "missing_indicator": True},
        ],
    }
)
OF_ITEMS = ["top", "sub", "sales", "price", "usual", "stock", "age"]
SETTINGS = {
    "model": "hsc_moe",
    "expert_hidden_dims": (8,),
    "num_experts": 4,
    "list_relative": True,
    "batch_size": 16,
    "num_epochs": 1,
    "learning_rate": 0.01,
}


@pytest.fixture(scope="module")
def frame():
    """Most items are of another category than the cheap one that is clicked for the query."""
    rng = np.random.default_rng(4)
    rows = []
    for number in range(80):
        wanted, budget = number % 4, rng.lognormal(3, 1)
        for i in range(5):
            sub = wanted if i == 2 else (wanted + 1) % 4
            usual = rng.choice([0.0, 10.0, 20.0, 50.0])
            rows.append(
                {
                    "search": f"s{number}",
                    "position": i + 1,
                    "query": f"query {wanted}" if number % 10 else f"rare {number}",
                    "budget": budget,
                    "top": f"top {sub // 2}",
                    "sub": f"sub {sub}",
                    "sales": round(rng.lognormal(3, 1), 2),
                    "price": round(usual * rng.uniform(0.5, 1.5) * (0.5 if i == 2 else 1.0), 2),
                    "usual": usual,
                    "stock": np.nan if rng.random() < 0.1 else rng.integers(0, 4),
                    "age": rng.integers(1, 9),
                    "clicked": int(i == 2),
                    "item": f"s{number}-{i}",
                }
            )
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def folder(frame, tmp_path_factory):
    """A log, its schema, and the data set and run of the command line."""
    out = tmp_path_factory.mktemp("commands")
    frame.to_csv(out / "log.csv", index=False)
    SCHEMA.save(out / "schema.json")
    log, schema = str(out / "log.csv"), out / "schema.json"
    manifest = build(BuildOptions("search-logs", log, schema, out / "data", test_fraction=0.0))
    assert sum(manifest["noted"].values()) == 8  # the rare queries; all have a majority
    config = make_config({**SETTINGS, "cache": "memory"})
    train(out / "data", out / "run", config, Console(quiet=True))
    return out


@pytest.fixture(scope="module")
def ranker(frame):
    return Ranker(**SETTINGS).fit(frame, schema=SCHEMA, verbose=0)


@pytest.mark.slow
def test_a_frame_has_the_tables_of_a_build(frame, folder, ranker):
    built = DataFolder(folder / "data").statistics
    assert DataFolder(ranker.run.path).statistics == built
    # price / usual: 0 / 0 is missing, as is a stock of 0 below an age.
    column = built["example"]["price"]
    share = column["missing"] / (column["missing"] + column["count"])
    assert share == pytest.approx((frame.usual == 0).mean(), abs=0.05)
    table = read_json(folder / "data" / "query_categories.json")
    assert table["query 3"] == ["top 1", "sub 3"]
    assert read_json(ranker.run.path / "query_categories.json") == table
    assert read_json(folder / "run" / "query_categories.json") == table


@pytest.mark.slow
def test_frames_and_the_command_line_give_equal_scores_and_metrics(frame, folder, ranker):
    scores = ranker.predict(frame)
    assert np.ptp(scores) > 1e-3
    out = folder / "scores.csv"
    predict(folder / "run", None, str(folder / "log.csv"), out, item_id="item")
    of_command = pd.read_csv(out).set_index("item_id").score[frame.item]
    np.testing.assert_allclose(scores, of_command, rtol=1e-5, atol=1e-6)
    # The category matters: without clicks the lists have that of most items.
    other = ranker.predict(frame.assign(query="unknown"))
    assert np.abs(other - scores).max() > 1e-3
    data = folder / "data"
    validation = evaluate_run(DataFolder(data), folder / "run", "validation", ("ndcg",))
    actual = ranker.evaluate(data, ["ndcg"], split="validation")
    assert actual["ndcg"] == summarize(validation, "skip")["ndcg"].mean


@pytest.mark.slow
def test_a_saved_ranker_and_its_export_give_equal_scores(frame, ranker, tmp_path):
    scores = ranker.predict(frame)
    ranker.save(tmp_path / "kept")
    loaded = Ranker.load(tmp_path / "kept")
    np.testing.assert_array_equal(loaded.predict(frame), scores)
    version = loaded.export(tmp_path / "models" / "shop")
    served = tf.saved_model.load(str(version)).signatures["rank"]
    encoder = RequestEncoder(SCHEMA)
    for search in ("s0", "s1", "s7", "s79"):
        rows = frame[frame["search"] == search].astype(object).where(frame.notna(), None)
        items = rows[OF_ITEMS].to_dict("records")
        context = rows[["query", "budget"]].iloc[0].to_dict()
        answer = served(inputs=tf.constant([encoder.encode(context, items)]))
        actual = np.zeros(len(items))
        actual[answer["order"].numpy()[0]] = answer["scores"].numpy()[0]
        np.testing.assert_allclose(actual, scores[rows.index], rtol=1e-4, atol=1e-5)
        ranked = {item.index: item.score for item in loaded.rank(context, items)}
        np.testing.assert_allclose([ranked[i] for i in range(len(items))], actual, rtol=1e-4)


def test_trees_of_frames_and_of_a_build_give_equal_scores(frame, folder):
    config = make_config({"model": "lambdamart", "list_relative": True})
    train_any(folder / "data", folder / "trees", config, Console(quiet=True))
    ranker = Ranker("lambdamart", list_relative=True).fit(frame, schema=SCHEMA, verbose=0)
    expected = Ranker.load(folder / "trees").predict(frame)
    np.testing.assert_allclose(ranker.predict(frame), expected, rtol=1e-6)
    assert np.ptp(expected) > 0.1
