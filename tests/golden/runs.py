"""Short trainings as the command line does them, and the evaluation of what they leave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from tests.tiny import SCHEMA, SMALL, TASKS, small_config, write_data_folder
from tfr_moe.baselines import train_any
from tfr_moe.data import DataFolder
from tfr_moe.evaluation.evaluate import evaluate_run, evaluate_runs, to_json

QUIET = Console(quiet=True)
NEURAL: dict[str, Any] = {**SMALL, "num_epochs": 2}
TREES = {"num_iterations": 10, "min_data_in_leaf": 5, "num_leaves": 7}
CASES: dict[str, dict[str, Any]] = {
    "dnn": NEURAL,
    "adv_hsc_moe": {
        **NEURAL,
        "preset": "paper",
        "num_experts": 4,
        "top_k": 2,
        "hsc_weight": 0.1,
    },
    "mmoe": {**NEURAL, "tower_hidden_dims": (4,)},
    "lambdamart": {"library_parameters": TREES},
}
METRICS = ("session_auc", "session_auc_shown_10", "ndcg", "mrr", "precision_5")


def scores_of_test(data: Path, run: Path) -> dict[str, list[float]]:
    """The scores of the first test lists, by task."""
    result: dict[str, list[float]] = {}

    def watch(by_task: Any) -> None:
        for task, batch in by_task.items():
            result.setdefault(task or "score", np.asarray(batch.scores)[batch.mask][:40].tolist())

    evaluate_run(DataFolder(data), run, "test", ["mrr"], callbacks=[watch])
    return result


def numbers(model: str, folder: Path) -> dict[str, Any]:
    """The history of a model's training below `folder`, and its test scores and their metrics."""
    schema = TASKS if model == "mmoe" else SCHEMA
    data, run = write_data_folder(folder / "data", schema=schema), folder / model
    result = train_any(data, run, small_config({"model": model, **CASES[model]}), QUIET)
    values: dict[str, Any] = {
        "best": {name: v for name, v in result["best"].items() if name.startswith("val_")},
        "best_epoch": result["best_epoch"],
        "parameters": result["parameters"],
    }
    if (run / "history.json").is_file():
        epochs = json.loads((run / "history.json").read_text(encoding="utf-8"))
        values["history"] = [
            {name: v for name, v in epoch.items() if name == "loss" or name.startswith("val_")}
            for epoch in epochs
        ]
    evaluated = to_json(evaluate_runs(data, [run], metrics=METRICS, console=QUIET))
    values["test"] = {
        name: {metric: summary["mean"] for metric, summary in means.items()}
        for name, means in evaluated["models"].items()
    }
    values["scores"] = scores_of_test(data, run)
    return values
