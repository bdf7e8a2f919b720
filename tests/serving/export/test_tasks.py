"""A model of several tasks from its export to the client: one combined score and one per task."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from tests.serving.conftest import CONTEXT, WARMUP, elwc, shop_items
from tests.serving.models import SHOP, inputs_of, towers
from tfr_moe._compat import tf
from tfr_moe.cli.serving import ranking_json, ranking_table
from tfr_moe.scorers import combined_model
from tfr_moe.serving.client import RankedItem, Ranking, RankingClient
from tfr_moe.serving.dev_server import DevServer
from tfr_moe.serving.export import export_model

LOWEST = float(np.finfo(np.float32).min)
WEIGHTS = {"click": 1.0, "bought": 10.0}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    inputs = inputs_of(SHOP)
    logits = towers(inputs, 2)
    model = tf.keras.Model(inputs, {"click": logits[..., 0], "bought": logits[..., 1]})
    export_model(combined_model(model, WEIGHTS), SHOP, root / "tasks", warmup=WARMUP)
    return root


@pytest.fixture(scope="module")
def signatures(models: Path):
    return tf.saved_model.load(str(models / "tasks" / "1")).signatures


@pytest.fixture(scope="module")
def client(models: Path) -> Iterator[RankingClient]:
    with (
        DevServer(models, port=0) as server,
        RankingClient(server.target, "tasks", SHOP, timeout=20.0) as connected,
    ):
        yield connected


def call(function, lists):
    outputs = function(inputs=tf.constant(lists, tf.string))
    return {name: value.numpy() for name, value in outputs.items()}


def sigmoid(x):
    return 1 / (1 + np.exp(-x.astype(np.float64)))


def test_scores_combine_those_of_the_tasks_by_the_stated_weights(signatures):
    actual = call(signatures["serving_default"], [elwc(shop_items(3)), elwc(shop_items(5))])
    assert set(actual) == {"scores", "scores_click", "scores_bought"}
    expected = sigmoid(actual["scores_click"][1]) + 10 * sigmoid(actual["scores_bought"][1])
    np.testing.assert_allclose(actual["scores"][1], expected, rtol=1e-5)
    for scores in actual.values():
        np.testing.assert_array_equal(scores[0, 3:], [LOWEST, LOWEST])


def test_rank_sorts_every_score_by_the_combined_one(signatures):
    lists = [elwc(shop_items(3)), elwc(shop_items(5))]
    plain, ranked = (call(signatures[name], lists) for name in ("serving_default", "rank"))
    assert set(ranked) == {"order", "valid", "scores", "scores_click", "scores_bought"}
    for row, size in enumerate((3, 5)):
        order = ranked["order"][row, :size]
        assert (np.diff(ranked["scores"][row, :size]) <= 0).all()
        for name in ("scores", "scores_click", "scores_bought"):
            np.testing.assert_allclose(ranked[name][row, :size], plain[name][row, order], rtol=1e-6)


def test_the_client_returns_the_scores_of_the_tasks(client, signatures):
    items = shop_items(4)
    ranking = client.rank(CONTEXT, items)
    plain = call(signatures["serving_default"], [elwc(items)])
    for item in ranking.items:
        assert item.score == pytest.approx(float(plain["scores"][0, item.index]), rel=1e-5)
        assert item.tasks == {
            task: pytest.approx(float(plain[f"scores_{task}"][0, item.index]), rel=1e-5)
            for task in ("bought", "click")
        }
    assert client.predict(CONTEXT, items) == pytest.approx(plain["scores"][0].tolist(), rel=1e-5)


def test_the_table_and_the_json_show_them():
    ranked = (
        RankedItem(1, 2.5, tasks={"click": 0.25, "bought": -1.0}),
        RankedItem(0, 1.5, tasks={"click": -3.0, "bought": 0.5}),
    )
    ranking = Ranking("shop", 1, ranked)
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(ranking_table(ranking, [{"price": 1.0}, {"price": 2.0}]))
    lines = console.export_text().splitlines()
    assert lines[1].split() == [
        "rank",
        "item",
        "score",
        "click",
        "score",
        "bought",
        "score",
        "price",
    ]
    assert lines[3].split() == ["1", "1", "2.5000", "0.2500", "-1.0000", "2"]
    assert ranking_json(ranking, [{}, {}])["items"][0]["tasks"] == {"click": 0.25, "bought": -1.0}
