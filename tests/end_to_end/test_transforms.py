"""Transforms of numerics: frames, the command line's steps, trees and exports agree."""

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
from tfr_moe.schema import FeatureSchema
from tfr_moe.serving.client.request import RequestEncoder
from tfr_moe.training import train

NUMBER = {"kind": "numeric", "scope": "example"}
SCHEMA = FeatureSchema.model_validate(
    {
        "list_id": "search",
        "labels": ["bought"],
        "position": "position",
        "features": [
            {"name": "budget", "kind": "numeric", "scope": "context", "transform": "quantile"},
            {"name": "price", **NUMBER, "ratio": "usual", "clip": [0, 3], "transform": "quantile"},
            {"name": "usual", **NUMBER, "bucketize": [0.5, 20, 40]},
            {"name": "stock", **NUMBER, "transform": "quantile", "missing": "median"},
            {"name": "age", **NUMBER, "ratio": "stock", "missing_indicator": True},
        ],
    }
)
SETTINGS = {
    "model": "moe",
    "expert_hidden_dims": (8,),
    "num_experts": 2,
    "top_k": 1,
    "gate_features": ("all",),
    "gate_residual": False,
    "list_relative": True,
    "batch_size": 16,
    "num_epochs": 1,
}


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(3)
    lists, size = 60, 5
    rows = lists * size
    usual = rng.choice([0.0, 10.0, 20.0, 50.0], rows)
    price = np.round(usual * rng.uniform(0.5, 1.5, rows), 2)
    stock = np.where(rng.random(rows) < 0.1, np.nan, rng.integers(0, 4, rows))
    return pd.DataFrame(
        {
            "search": np.repeat([f"s{i}" for i in range(lists)], size),
            "position": np.tile(np.arange(1, size + 1), lists),
            "budget": np.repeat(rng.lognormal(3, 1, lists), size),
            "price": price,
            "usual": usual,
            "stock": stock,
            "age": rng.integers(1, 9, rows),
            "bought": (price < usual * 0.8).astype(int),
            "item": [f"i{i}" for i in range(rows)],
        }
    )


@pytest.fixture(scope="module")
def folder(frame, tmp_path_factory):
    """A log, its schema, and the data set and run of the command line."""
    out = tmp_path_factory.mktemp("transforms")
    frame.to_csv(out / "log.csv", index=False)
    SCHEMA.save(out / "schema.json")
    log, schema = str(out / "log.csv"), out / "schema.json"
    build(BuildOptions("search-logs", log, schema, out / "data", test_fraction=0.0))
    config = make_config({**SETTINGS, "cache": "memory"})
    train(out / "data", out / "run", config, Console(quiet=True))
    return out


def scores_of(folder, run, frame, **where):
    predict(run, None, str(folder / "log.csv"), folder / "scores.csv", item_id="item", **where)
    return pd.read_csv(folder / "scores.csv").set_index("item_id").score[frame.item].to_numpy()


@pytest.mark.slow
def test_frames_the_command_line_and_an_export_give_equal_scores(frame, folder, tmp_path):
    ranker = Ranker(**SETTINGS).fit(frame, schema=SCHEMA, verbose=0)
    built = DataFolder(folder / "data").statistics
    assert DataFolder(ranker.run.path).statistics == built
    # price / usual: 0 / 0 is missing, as is a stock of 0 below an age.
    no_usual = (frame.usual == 0).mean()
    column = built["example"]["price"]
    assert column["missing"] / (column["missing"] + column["count"]) == pytest.approx(
        no_usual, abs=0.05
    )
    scores = ranker.predict(frame)
    assert np.ptp(scores) > 1e-3
    np.testing.assert_allclose(
        scores, scores_of(folder, folder / "run", frame), rtol=1e-5, atol=1e-6
    )
    version = ranker.export(tmp_path / "models" / "shop")
    served = tf.saved_model.load(str(version)).signatures["rank"]
    encoder = RequestEncoder(SCHEMA)
    for search in ("s0", "s7", "s59"):
        rows = frame[frame.search == search].astype(object).where(frame.notna(), None)
        columns = ["price", "usual", "stock", "age"]
        items = rows[columns].to_dict("records")
        request = encoder.encode({"budget": rows.budget.iloc[0]}, items)
        answer = served(inputs=tf.constant([request]))
        actual = np.zeros(len(items))
        actual[answer["order"].numpy()[0]] = answer["scores"].numpy()[0]
        np.testing.assert_allclose(actual, scores[rows.index], rtol=1e-4, atol=1e-5)


def test_trees_of_frames_and_of_a_build_give_equal_scores(frame, folder):
    config = make_config({"model": "lambdamart", "list_relative": True})
    train_any(folder / "data", folder / "trees", config, Console(quiet=True))
    ranker = Ranker("lambdamart", list_relative=True).fit(frame, schema=SCHEMA, verbose=0)
    expected = Ranker.load(folder / "trees").predict(frame)
    np.testing.assert_allclose(ranker.predict(frame), expected, rtol=1e-6)
    assert np.ptp(expected) > 0.1
