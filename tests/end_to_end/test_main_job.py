"""The main job by the command line alone: logs, data, runs, comparison, export, server, query."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tfr_moe.cli import main

SMALL = ["expert_hidden_dims=[16,8]", "embedding_dim=4", "learning_rate=0.003", "num_epochs=2",
         "batch_size=64"]  # fmt: skip
EXPERTS = {"dnn": [], "adv_hsc_moe": ["num_experts=4", "top_k=2"]}


def run(capsys, *arguments):
    """Runs a command in this process, which saves the imports, and returns its output."""
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    assert caught.value.code == 0, printed.err
    return printed


@pytest.mark.smoke
def test_from_logs_to_an_answered_query(capsys, tmp_path):
    logs, data, runs, models = (tmp_path / name for name in ("logs", "data", "runs", "models"))
    run(capsys, "synth", "--out", logs, "--sessions", 600, "--seed", 3)
    run(capsys, "build", "search-logs", "--input", f"{logs}/logs-*.csv.gz",
        "--schema", logs / "schema.yaml", "--out", data)  # fmt: skip
    for model, experts in EXPERTS.items():
        settings = [part for pair in [*SMALL, *experts] for part in ("--set", pair)]
        run(capsys, "train", "--data", data, "--model", model, "--out", runs / model, *settings)
    numbers, manifest = tmp_path / "numbers.json", data / "manifest.json"
    # As a source that samples negatives writes it.
    notes = {"negatives": "sampled: nobody saw them"}
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "notes": notes}))
    printed = run(capsys, "evaluate", "--data", data, "--run", runs / "adv_hsc_moe",
               "--baseline", runs / "dnn", "--json", numbers)  # fmt: skip
    evaluation = json.loads(numbers.read_text())
    assert set(evaluation["models"]) == {"dnn", "adv_hsc_moe"}
    assert evaluation["comparisons"]["adv_hsc_moe"]["session_auc"]["p_value"] is not None
    assert "Difference from dnn" in printed.out
    assert "Negatives of these lists: sampled: nobody saw them." in printed.out
    assert evaluation["notes"] == notes
    run(capsys, "export", "--run", runs / "adv_hsc_moe", "--out", models / "shop")
    assert (models / "shop" / "1" / "assets.extra" / "tf_serving_warmup_requests").exists()

    item = {"item_id": "7", "brand": "3", "item_top_category": "Books",
            "item_sub_category": "Books-1", "product_ctr": 0.1, "product_cvr": 0.02,
            "price": 9.5, "sales_volume": 12, "good_comments_ratio": 0.9,
            "relevance_score": 0.4, "user_sub_category_ctr": 0.1}  # fmt: skip
    context = {"query_id": "q", "user_id": "u", "top_category": "Books",
               "sub_category": "Books-1", "user_age": 30, "user_purchase_power": 1.0,
               "user_activeness": 0.5, "click_history": ["7", "9"]}  # fmt: skip
    items = [item, {**item, "price": 99.0}, {**item, "relevance_score": 3.0}]
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"context": context, "items": items}))
    server = subprocess.Popen(
        [sys.executable, "-m", "tfr_moe.cli", "serve", "--models", str(models), "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        target = listening(server)
        printed = run(
            capsys, "rank", "--target", target, "--model", "shop", "--request", request, "--json"
        )
        answer = json.loads(printed.out)
        assert sorted(entry["index"] for entry in answer["items"]) == [0, 1, 2]
        scores = [entry["score"] for entry in answer["items"]]
        assert scores == sorted(scores, reverse=True)
        assert sum(expert["weight"] for expert in answer["experts"]) == pytest.approx(1, abs=1e-5)
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=30) == 0


def listening(server):
    """Returns the address that the server prints."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        line = server.stderr.readline()
        if line.startswith("listening on "):
            return line.split()[2]
    raise AssertionError("the server printed no address")
