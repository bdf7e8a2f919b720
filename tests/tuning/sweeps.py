"""Sweeps with results made by hand, written as the engine writes them."""

from itertools import product
from pathlib import Path

import yaml

from tfr_moe.data import DataFolder
from tfr_moe.tuning.sweep_folder import (
    SeedResult,
    TrialJob,
    ended_trial,
    write_trial,
)

BASE = {
    "model": "adv_hsc_moe",
    "num_experts": 10,
    "top_k": 4,
    "num_adversarial": 1,
    "num_epochs": 3,
    "expert_hidden_dims": [16, 8],
}


def seed_result(seed, value, metric="session_auc", epochs=3):
    """A seed whose metric rises to `value` at the last epoch, and whose loss falls."""
    history = [
        {
            "epoch": epoch,
            "loss": 0.7 - 0.1 * epoch,
            "val_loss": 0.72 - 0.1 * epoch,
            f"val_{metric}": value - 0.02 * (epochs - epoch),
        }
        for epoch in range(1, epochs + 1)
    ]
    metrics = {"ndcg": value - 0.1, "loss": 0.42, metric: value}
    return SeedResult(seed, metrics, epochs, epochs, 12.5, history)


def trial(trial_id, hyperparameters, values, metric="session_auc"):
    """A completed trial with these values under seeds 1, 2, ..."""
    seeds = [seed_result(i, value, metric) for i, value in enumerate(values, start=1)]
    return ended_trial(TrialJob(trial_id, hyperparameters), metric, seeds)


def failed(trial_id, hyperparameters, error):
    """A trial that ended with an error."""
    return ended_trial(TrialJob(trial_id, hyperparameters), "session_auc", [], error)


def write_sweep(path: Path, trials, metric="session_auc", data="data"):
    """A sweep's folder with its `sweep.yaml` and these trials."""
    path.mkdir(parents=True, exist_ok=True)
    settings = {
        "data": str(data),
        "base": BASE,
        "space": {"hsc_weight": [0.1, 0.01, 0.001, 0.0001]},
        "algorithm": "grid",
        "objective": metric,
        "seeds": [1, 2],
        "max_trials": None,
    }
    if Path(data).is_dir():
        settings["data_fingerprint"] = DataFolder(data).fingerprint
    (path / "sweep.yaml").write_text(yaml.safe_dump(settings))
    for one in trials:
        write_trial(path, one)
    return path


# The test AUC of the paper: lambda_2 -> values for lambda_1 of 0.1, 0.01, 1e-3, 1e-4.
TABLE_VIII = {
    0.1: (0.8167, 0.8140, 0.8167, 0.8177),
    0.01: (0.8217, 0.8212, 0.8172, 0.8214),
    0.001: (0.8221, 0.8168, 0.8227, 0.8221),
    0.0001: (0.8217, 0.8223, 0.8225, 0.8172),
}


def lambda_trials(half_spread=0.0005):
    """The cells of Table VIII as trials of two seeds that lie this far on both sides."""
    trials = []
    for down, row in TABLE_VIII.items():
        for across, value in zip((0.1, 0.01, 0.001, 0.0001), row, strict=True):
            trials.append(
                trial(
                    f"{len(trials):04d}",
                    {"hsc_weight": across, "adversarial_weight": down},
                    [value - half_spread, value + half_spread],
                )
            )
    return trials


def expert_trials():
    """N, K, D of Fig. 6, with values that rise with K and nothing else."""
    trials = []
    for number, (n, k, d) in enumerate(product((10, 16, 32), (2, 4), (1, 2))):
        names = {"num_experts": n, "top_k": k, "num_adversarial": d}
        middle = 0.80 + 0.005 * k + 0.0001 * number
        trials.append(trial(f"{number:04d}", names, [middle - 0.001, middle + 0.001]))
    return trials


def gate_trials():
    """The inputs of Table VII."""
    rows = [
        (0.8212, ["sub"]),
        (0.8137, ["top", "sub"]),
        (0.8135, ["clicked", "top", "sub"]),
        (0.8131, ["age", "top", "sub"]),
        (0.8129, ["all"]),
    ]
    return [
        trial(f"{i:04d}", {"gate_features": names}, [value])
        for i, (value, names) in enumerate(rows)
    ]
