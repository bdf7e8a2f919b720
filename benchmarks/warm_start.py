"""Quality by epoch of a run that starts from the one of the day before, and of one that does not.

    python benchmarks/warm_start.py [--sessions 8000] [--seeds 3] [--epochs 6] [--json FILE]

A generated log is cut into two overlapping windows by time, of 80 % of the sessions each, the
second starting after the first 20 %. `before` is trained on the first window, `scratch` and `warm`
on the second, whose validation lists are the latest, `warm` also with a quarter of the learning
rate. The epoch is named in which each reaches the best validation metric of `scratch`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

from tfr_moe import Ranker
from tfr_moe.synthetic import SearchLogOptions, generate

METRIC = "val_session_auc"
SETTINGS: dict[str, Any] = {
    "num_experts": 8,
    "expert_hidden_dims": (32, 16),
    "embedding_dim": 8,
    "learning_rate": 2e-3,
    "batch_size": 64,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=8000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        logs = Path(folder) / "logs"
        generate(logs, SearchLogOptions(sessions=options.sessions, num_files=1))
        schema = logs / "schema.yaml"
        log = pd.read_csv(next(logs.glob("*.csv.gz")), dtype={"sub_category": str})
        time = log["timestamp"]
        first, second = log[time < time.quantile(0.8)], log[time >= time.quantile(0.2)]
        for seed in range(options.seeds):
            settings = {**SETTINGS, "num_epochs": options.epochs, "seed": seed}
            before = Ranker(**settings).fit(first, schema=schema, verbose=0)
            scratch = Ranker(**settings).fit(second, schema=schema, verbose=0)
            curves = {"scratch": scratch.history.history[METRIC]}
            before.save(Path(folder) / f"run-{seed}")
            for name, factor in (("warm", 1.0), ("warm, rate / 4", 0.25)):
                rate = factor * SETTINGS["learning_rate"]
                warm = Ranker.load(before.run.path).set_params(warm_start=True, learning_rate=rate)
                curves[name] = warm.fit(second, verbose=0).history.history[METRIC]
            best = max(curves["scratch"])
            reached = {
                name: next((n for n, v in enumerate(curve, 1) if v >= best), None)
                for name, curve in curves.items()
            }
            found.append({"seed": seed, **curves, "reached": reached})
            for name, curve in curves.items():
                print(seed, name, *(f"{v:.4f}" for v in curve), "epoch", reached[name], flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
