"""Replicas on logical devices of one machine train as one device does, in one process."""

import json

import pytest

SCRIPT = """
import json, sys
import numpy as np
from tfr_moe._compat import tf
cpus = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpus[0], [tf.config.LogicalDeviceConfiguration()] * 2)
from pathlib import Path
from rich.console import Console
from tests.tiny import SMALL, TASKS, write_data_folder, small_config

from tfr_moe.data import DataFolder
from tfr_moe.layers.distribute import seed_of_replica
from tfr_moe.training.run import fit, make_builder
from tfr_moe.training.distribute import ProcessContext
from tfr_moe.tuning.trial import TrialPipeline

folder = Path(sys.argv[1])
# 33 lists of unlike lengths: the last batch has one list, which only one replica can get.
data = DataFolder(write_data_folder(folder / "data", train=33, validation=17, test=2))
tasks = DataFolder(write_data_folder(folder / "tasks", 33, 17, 2, schema=TASKS))
mirrored = ProcessContext(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]))

# D = N - K: no expert is drawn.
SETTINGS = {**SMALL, "batch_size": 16, "num_epochs": 2, "noisy_gate": False, "num_adversarial": 2}
SETTINGS |= {"metrics": ["ndcg"], "monitor": "ndcg"}
TERMS = {"hsc_weight": 0.5, "adversarial_weight": 0.2, "importance_weight": 0.1}
CASES = {
    "terms": ("adv_hsc_moe", data, {**TERMS, "clip_norm": 0.5, "steps_per_execution": 2}),
    "tasks": ("mmoe", tasks, {}),
}
result = {}
for name, (model, where, settings) in CASES.items():
    config = small_config({**SETTINGS, "model": model, **settings})
    ran = []
    for context in (ProcessContext(tf.distribute.get_strategy()), mirrored):
        run = folder / f"{name}-{len(ran)}"
        run.mkdir()
        builder, quiet = make_builder(where, config), Console(quiet=True)
        ran.append(fit(builder, config, run, quiet, TrialPipeline, context=context))
    one, two = ran
    weights = zip(one.model.get_weights(), two.model.get_weights(), strict=True)
    result[name] = {
        "replicas": mirrored.strategy.num_replicas_in_sync,
        "epochs": [one.history.epochs, two.history.epochs],
        "weights": max(float(np.abs(a - b).max()) for a, b in weights),
    }

gates = mirrored.strategy.run(lambda: seed_of_replica(7))
result["seeds"] = [int(seed) for seed in mirrored.strategy.experimental_local_results(gates)]
print(json.dumps(result))
"""


@pytest.fixture(scope="module")
def result(run_python, tmp_path_factory):
    folder = tmp_path_factory.mktemp("replicas")
    done = run_python(SCRIPT.replace("sys.argv[1]", repr(str(folder))))
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("case", ["terms", "tasks"])
def test_two_replicas_train_as_one_device(result, case):
    """Weights, losses with all their terms, gate metrics and validation, over two epochs."""
    one, two = result[case]["epochs"]
    assert result[case]["replicas"] == 2
    assert len(one) == 2
    for alone, shared in zip(one, two, strict=True):
        # Sums in another order differ in the last digits.
        assert shared == pytest.approx(alone, abs=1e-4)
    assert result[case]["weights"] < 1e-4


def test_the_terms_that_are_compared_are_there(result):
    first = result["terms"]["epochs"][0][0]
    for name in ("hsc", "adversarial", "dead_experts"):
        assert first[name] >= 0, name


def test_replicas_draw_from_seeds_of_their_own(result):
    assert result["seeds"][0] == 7 != result["seeds"][1]
