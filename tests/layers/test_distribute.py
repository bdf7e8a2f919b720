"""The mean over valid items, alone and over replicas."""

import subprocess
import sys

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.layers.distribute import mean_over_items


def test_padding_counts_for_nothing():
    values, weights = tf.constant([[1.0, 5.0], [3.0, np.nan]]), tf.constant([[1, 0], [1, 0]])
    assert float(mean_over_items(values, weights)) == 2.0


def test_weights_broadcast_over_items():
    # (2 x 1 + 2 x 2 + 1 x 3 + 1 x 4) / 6
    values, weights = tf.constant([[1.0, 2.0], [3.0, 4.0]]), tf.constant([[2.0], [1.0]])
    np.testing.assert_allclose(mean_over_items(values, weights), 13 / 6, rtol=1e-6)


def test_nothing_valid_gives_zero():
    assert float(mean_over_items(tf.constant([1.0]), tf.constant([0.0]))) == 0.0


REPLICAS = """
import numpy as np
from tfr_moe._compat import tf
cpus = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpus[0], [tf.config.LogicalDeviceConfiguration()] * 2)
from tfr_moe.layers.mixture import CategoryMixtureOfExperts
from tfr_moe import losses

rng = np.random.default_rng(0)
items = rng.normal(size=[8, 5, 4]).astype("float32")
sc, tc = rng.normal(size=[2, 8, 3]).astype("float32")
mask = np.arange(5) < np.array([5, 5, 5, 5, 1, 1, 2, 1])[:, None]  # replicas of unlike size
labels = np.where(mask, rng.random([8, 5]) < 0.4, -1.0).astype("float32")

def trained(strategy):
    with strategy.scope():
        inputs = [tf.keras.Input(s) for s in ([None, 4], [3], [3])]
        inputs.append(tf.keras.Input([None], dtype=tf.bool))
        moe = CategoryMixtureOfExperts(4, 2, 2, [6], hsc_weight=5.0, adversarial_weight=0.5,
                                       importance_weight=0.5, noisy_gate=False,
                                       seed=3)
        model = tf.keras.Model(inputs, moe(*inputs[:3], mask=inputs[3])["logits"])
        model.compile(tf.keras.optimizers.SGD(0.5), losses.get("sigmoid_cross_entropy"))
    data = tf.data.Dataset.from_tensor_slices(((items, sc, tc, mask), labels)).batch(8)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    history = model.fit(data.with_options(options), epochs=3, verbose=0).history
    return model.get_weights(), history

one, one_logs = trained(tf.distribute.get_strategy())
two, two_logs = trained(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]))
for a, b in zip(one, two):
    np.testing.assert_allclose(a, b, atol=2e-5)
assert {"hsc", "adversarial", "gate_entropy", "dead_experts"} <= set(one_logs)
for name, values in one_logs.items():
    np.testing.assert_allclose(two_logs[name], values, atol=2e-5, err_msg=name)
print("equal")
"""


def test_two_replicas_of_unlike_size_train_as_one():
    """CE, all terms and what is shown of them are the same on two replicas (D = N - K: no draw)."""
    done = subprocess.run(
        [sys.executable, "-c", REPLICAS], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.strip().endswith("equal"), done.stderr[-2000:]
