"""Resident memory over many trials of a sweep in one process: does each trial return its own?

    python benchmarks/sweep_memory.py --data DATA [--trials 30] [--model moe] [--set key=value]...

Each trial is trained by what `tfr-moe tune` runs, in this process. Printed are the resident memory
after each trial and, over the second half of the trials, when caches have filled, the growth per
trial (Theil-Sen), beside the size of one trial's weights and optimizer state.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
from pathlib import Path

from scipy import stats

from tfr_moe._compat import tf
from tfr_moe.config import load_config
from tfr_moe.data import DataFolder
from tfr_moe.training.run import make_scorer
from tfr_moe.tuning.config import make_sweep_config
from tfr_moe.tuning.sweep import resolve
from tfr_moe.tuning.sweep_folder import TrialJob
from tfr_moe.tuning.trial import SweepContext, run_job

MEGABYTE = 2**20


def resident() -> float:
    """Resident memory of this process in MB."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / MEGABYTE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--model", default="moe")
    parser.add_argument("--set", action="append", default=["num_epochs=1"], dest="settings")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    base = load_config(None, arguments.settings, model=arguments.model)
    folder = DataFolder(arguments.data)
    weights = make_scorer(folder, base).build_model().count_params()
    tf.keras.backend.clear_session()
    config = make_sweep_config({"base": base.changed(), "space": {"learning_rate": [0.01, 0.001]}})
    sizes = []
    with tempfile.TemporaryDirectory() as temporary:
        sweep = Path(temporary)
        resolve(config, folder).save(sweep / "sweep.yaml")
        context = SweepContext.open(sweep, folder.path)
        context.load_cache()
        print(f"before: {resident():.0f} MB; one model has {weights:,} weights")
        for number in range(arguments.trials):
            rate = 0.01 / (number + 1)
            job = TrialJob(f"{number:04d}", {"learning_rate": rate})
            trial = run_job(context, job, print)
            assert not trial.failed, trial.error
            sizes.append(resident())
            print(f"trial {number + 1}: {sizes[-1]:.1f} MB", flush=True)
    second = sizes[len(sizes) // 2 :]
    # The median of all slopes: a moment at which the system took pages away does not count.
    slope = float(stats.theilslopes(second).slope) if len(second) > 1 else 0.0
    # Weights and two moments of Adam, float32.
    state = weights * 12 / MEGABYTE
    print(f"growth over the last {len(second)} trials: {slope:.2f} MB a trial")
    print(f"weights and optimizer of one trial: {state:.2f} MB")
    if arguments.json:
        report = {"megabytes": sizes, "slope": slope, "state": state}
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
