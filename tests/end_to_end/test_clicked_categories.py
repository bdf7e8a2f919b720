"""Categories from clicks: frames, the command line's steps and exports agree."""

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from tfr_moe import Ranker
from tfr_moe._compat import tf
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
            {"name": "top", **ID},
            {"name": "sub", **ID},
            {"name": "price", "scope": "example", "kind": "numeric", "transform": "log1p"},
        ],
    }
)
SETTINGS = {
    "model": "hsc_moe",
    "expert_hidden_dims": (8,),
    "num_experts": 4,
    "batch_size": 16,
    "num_epochs": 1,
    "learning_rate": 0.01,
}


def search_log(lists=80, size=5):
    """Most items are of another category than the one that is clicked for the query."""
    rng = np.random.default_rng(4)
    rows = []
    for number in range(lists):
        wanted = number % 4
        for i in range(size):
            sub = wanted if i == 2 else (wanted + 1) % 4
            rows.append(
                {
                    "search": f"s{number}",
                    "position": i + 1,
                    "query": f"query {wanted}" if number % 10 else f"rare {number}",
                    "top": f"top {sub // 2}",
                    "sub": f"sub {sub}",
                    "price": round(rng.lognormal(3, 1), 2),
                    "clicked": int(i == 2),
                    "item": f"s{number}-{i}",
                }
            )
    return pd.DataFrame(rows)


@pytest.mark.slow
def test_frames_the_command_line_and_an_export_give_equal_scores(tmp_path):
    frame = search_log()
    frame.to_csv(tmp_path / "log.csv", index=False)
    SCHEMA.save(tmp_path / "schema.json")
    log, schema, data = str(tmp_path / "log.csv"), tmp_path / "schema.json", tmp_path / "data"
    manifest = build(BuildOptions("search-logs", log, schema, data, test_fraction=0.0))
    assert sum(manifest["noted"].values()) == 8  # the rare queries; all have a majority
    config = make_config({**SETTINGS, "cache": "memory"})
    train(data, tmp_path / "run", config, Console(quiet=True))
    ranker = Ranker(**SETTINGS).fit(frame, schema=SCHEMA, verbose=0)
    table = read_json(data / "query_categories.json")
    assert table["query 3"] == ["top 1", "sub 3"]
    assert read_json(ranker.run.path / "query_categories.json") == table
    assert read_json(tmp_path / "run" / "query_categories.json") == table

    scores = ranker.predict(frame)
    predict(tmp_path / "run", None, log, tmp_path / "scores.csv", item_id="item")
    of_command = pd.read_csv(tmp_path / "scores.csv").set_index("item_id").score[frame.item]
    np.testing.assert_allclose(scores, of_command, rtol=1e-5, atol=1e-6)
    # The category matters: without clicks the lists have that of most items.
    other = ranker.predict(frame.assign(query="unknown"))
    assert np.abs(other - scores).max() > 1e-3
    validation = evaluate_run(DataFolder(data), tmp_path / "run", "validation", ("ndcg",))
    actual = ranker.evaluate(data, ["ndcg"], split="validation")
    assert actual["ndcg"] == summarize(validation, "skip")["ndcg"].mean

    ranker.save(tmp_path / "kept")
    loaded = Ranker.load(tmp_path / "kept")
    np.testing.assert_array_equal(loaded.predict(frame), scores)
    version = loaded.export(tmp_path / "models" / "shop")
    served = tf.saved_model.load(str(version)).signatures["rank"]
    for search in ("s0", "s1", "s2"):
        rows = frame[frame["search"] == search]
        items = rows[["top", "sub", "price"]].to_dict("records")
        context = {"query": rows["query"].iloc[0]}
        request = RequestEncoder(SCHEMA).encode(context, items)
        answer = served(inputs=tf.constant([request]))
        actual = np.zeros(len(items))
        actual[answer["order"].numpy()[0]] = answer["scores"].numpy()[0]
        np.testing.assert_allclose(actual, scores[rows.index], rtol=1e-4, atol=1e-5)
        ranked = {item.index: item.score for item in loaded.rank(context, items)}
        np.testing.assert_allclose([ranked[i] for i in range(len(items))], actual, rtol=1e-4)
