"""A shop's CSV file to a served answer: the command line and Python give equal scores."""

import json

import numpy as np
import pandas as pd
import pytest

from tfr_moe import Ranker
from tfr_moe.cli import main
from tfr_moe.serving.client import RankingClient
from tfr_moe.serving.dev_server import DevServer

TREE = {"Möbel": ["Stühle", "Tische, groß"], "Küche": ["Töpfe", "Messer"]}
PAIRS = [(top, sub) for top, subs in TREE.items() for sub in subs]
BRANDS = ["Müller", "Weiß, Inc.", "Søren"]
SETTINGS = {
    "model": "adv_hsc_moe",
    "expert_hidden_dims": [8],
    "num_experts": 4,
    "learning_rate": 0.01,
    "batch_size": 32,
    "num_epochs": 2,
    "cache": "memory",
}


def write_log(path, lists=120):
    """Missing prices, commas, quotes and umlauts in titles, dates as text, categories of items."""
    rng = np.random.default_rng(5)
    rows = []
    for number in range(lists):
        category = number % len(PAIRS)
        prices = rng.gamma(2.0, 20.0, 6).round(2)
        for i, price in enumerate(prices):
            top, sub = PAIRS[category] if i < 4 else PAIRS[rng.integers(len(PAIRS))]
            model = int(rng.integers(40))
            rows.append(
                {
                    "search_id": f"s{number:04d}",
                    "date": f"2024-03-{1 + number // 24:02d} {number % 24:02d}:00:00",
                    "query": PAIRS[category][1].lower(),
                    "product_id": f"P{number % 7}-{i}",
                    "title": f'{sub}, "Modell {model}", weiß',
                    "brand": BRANDS[model % 3],
                    "category_1": top,
                    "category_2": sub,
                    "price": None if rng.random() < 0.1 else price,
                    "clicked": int(price <= np.sort(prices)[1]),
                    "purchased": int(price == prices.min()),
                }
            )
    pd.DataFrame(rows).to_csv(path, index=False)


def command(*arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert ended.value.code == 0, arguments


@pytest.mark.slow
def test_a_csv_becomes_a_served_answer_with_equal_scores_in_python(tmp_path, capsys):
    log, data, run = tmp_path / "log.csv", tmp_path / "data", tmp_path / "run"
    schema, scores = tmp_path / "schema.yaml", tmp_path / "scores.csv"
    write_log(log)
    roles = ("--list-id", "search_id", "--label", "purchased", "--time", "date")
    command("schema", "--input", log, "--out", schema, *roles)
    printed = capsys.readouterr().err
    assert "category: item.category_2 in item.category_1" in printed
    assert "column 'clicked': leak" in printed
    split = ("--test-fraction", "0")
    command("build", "search-logs", "--input", log, "--schema", schema, "--out", data, *split)
    settings = [f"--set={name}={json.dumps(value)}" for name, value in SETTINGS.items()]
    command("train", "--data", data, "--out", run, *settings[1:], "--model", SETTINGS["model"])
    command("export", "--run", run, "--out", tmp_path / "models" / "shop")
    item = ("--item-id", "product_id")
    command(
        "predict", "--model", tmp_path / "models" / "shop", "--input", log, "--out", scores, *item
    )

    frame = pd.read_csv(log)
    settings = {name: value for name, value in SETTINGS.items() if name != "cache"}
    ranker = Ranker(**settings).fit(
        frame, list_id="search_id", label="purchased", time="date", verbose=0
    )
    of_command = pd.read_csv(scores).set_index(["list_id", "item_id"])["score"]
    keys = list(zip(frame["search_id"], frame["product_id"], strict=True))
    np.testing.assert_allclose(ranker.predict(frame), of_command[keys], rtol=1e-4, atol=1e-5)

    rows = frame[frame["search_id"] == "s0007"].astype(object).where(frame.notna(), None)
    names = {feature.name for feature in ranker.schema.select("example")}
    items = [{k: v for k, v in row.items() if k in names} for row in rows.to_dict("records")]
    context = {"query": rows["query"].iloc[0]}
    with DevServer(tmp_path / "models", port=0) as server:
        served = RankingClient(server.target, "shop", timeout=60).rank(context, items)
    local = ranker.rank(context, items)
    assert [item.index for item in served.items] == [item.index for item in local]
    np.testing.assert_allclose(
        [item.score for item in served.items], [item.score for item in local], rtol=1e-4, atol=1e-5
    )
