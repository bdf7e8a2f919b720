"""FusedAdamW against Keras' AdamW, the formula by hand, and what a sparse gradient may touch."""

import numpy as np
import pytest

from tfr_moe._compat import tf
from tfr_moe.config import make_config
from tfr_moe.training import optimizers
from tfr_moe.training.optimizers import FusedAdamW, learning_rate_drop

# TensorFlow's kernel takes 1 - beta_2 in float32, Keras in float64: they differ by 1.3e-5 of it,
# and the root of v, which divides each step, by half of that.
KERNEL = 6.5e-6
SHAPES = [(40, 30), (30,), (3, 20, 10)]
SETTINGS = [
    {},
    {"weight_decay": 0.1, "global_clipnorm": 0.5},
    {"clipvalue": 0.05, "beta_1": 0.8, "beta_2": 0.99, "epsilon": 1e-3},
    {"use_ema": True, "ema_momentum": 0.7, "ema_overwrite_frequency": 2},
    {"learning_rate": tf.keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)},
]


def weights(seed=0):
    generator = np.random.default_rng(seed)
    return [
        tf.Variable(generator.normal(size=shape).astype(np.float32), name=f"w{i}/kernel")
        for i, shape in enumerate(SHAPES)
    ]


def gradients(step):
    generator = np.random.default_rng(100 + step)
    return [tf.constant(generator.normal(size=shape).astype(np.float32)) for shape in SHAPES]


def run(optimizer, variables, steps):
    step = tf.function(lambda *g: optimizer.apply_gradients(zip(g, variables, strict=True)))
    for number in steps:
        step(*gradients(number))


@pytest.mark.parametrize("settings", SETTINGS, ids=["plain", "clip", "betas", "ema", "schedule"])
def test_dense_steps_are_those_of_keras(settings):
    ours, theirs = weights(), weights()
    given = {"learning_rate": 0.03, **settings}
    for variables, optimizer in (
        (theirs, tf.keras.optimizers.AdamW(**given)),
        (ours, FusedAdamW(**given)),
    ):
        optimizer.exclude_from_weight_decay(var_names=["w1"])
        run(optimizer, variables, range(5))
        optimizer.finalize_variable_values(variables)
    for mine, other in zip(ours, theirs, strict=True):
        # Sums in another order: a few units in the last place of numbers around 1.
        np.testing.assert_allclose(mine.numpy(), other.numpy(), atol=2e-6 + 5 * 0.03 * KERNEL)


def test_a_sparse_step_by_hand():
    table = tf.Variable([[1.0], [2.0], [3.0]])
    optimizer = FusedAdamW(learning_rate=0.1, weight_decay=0.5, epsilon=0.0, lazy_size=1)
    # Row 2 comes twice: its gradients 1 and 3 are one of 4.
    slices = tf.IndexedSlices([[2.0], [1.0], [3.0]], tf.constant([0, 2, 2]), tf.constant([3, 1]))
    optimizer.apply_gradients([(slices, table)])
    # w - 0.1 x 0.5 x w - 0.1 x sign(g) in the first step, whatever the size of g.
    np.testing.assert_allclose(table.numpy(), [[0.85], [2.0], [2.75]], atol=1e-6)
    m, v = optimizer._momentums[0].numpy(), optimizer._velocities[0].numpy()
    np.testing.assert_allclose(m, [[0.2], [0.0], [0.4]], atol=1e-6)
    np.testing.assert_allclose(v, [[0.004], [0.0], [0.016]], atol=1e-6)


def test_a_sparse_gradient_of_all_rows_is_a_dense_one():
    values = np.random.default_rng(1).normal(size=(4, 3, 2)).astype(np.float32)
    dense, sparse = tf.Variable(values[0]), tf.Variable(values[0])
    for variable in (dense, sparse):
        optimizer = FusedAdamW(learning_rate=0.1, lazy_size=1)
        for gradient in values[1:]:
            slices = tf.IndexedSlices(gradient[::-1], tf.constant([2, 1, 0]), tf.constant([3, 2]))
            optimizer.apply_gradients([(gradient if variable is dense else slices, variable)])
    np.testing.assert_allclose(sparse.numpy(), dense.numpy(), atol=1e-6 + 3 * 0.1 * KERNEL)


def adam_by_hand(lazy, period, steps):
    """The way of a weight whose gradient is 1 in one of `period` steps and else 0."""
    m = v = weight = 0.0
    for step in range(1, steps + 1):
        gradient = float(step % period == 1)
        if gradient or not lazy:
            m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient
            scale = np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
            weight -= 0.01 * scale * m / (np.sqrt(v) + 1e-7)
    return weight


@pytest.mark.parametrize("lazy", [True, False])
def test_a_rare_row_of_a_lazy_table_moves_less_than_under_keras(lazy):
    table = tf.Variable(tf.zeros([2, 1]))
    settings = {"learning_rate": 0.01, "weight_decay": 0.0}
    keras = tf.keras.optimizers.AdamW(**settings)
    optimizer = FusedAdamW(lazy_size=1, **settings) if lazy else keras
    optimizer.build([table])

    @tf.function
    def train(row):
        slices = tf.IndexedSlices(tf.ones([1, 1]), row, tf.constant([2, 1]))
        optimizer.apply_gradients([(slices, table)])

    for step in range(1, 41):
        train(tf.constant([0 if step % 10 == 1 else 1]))
    expected = adam_by_hand(lazy, 10, 40)
    np.testing.assert_allclose(table.numpy()[0, 0], expected, rtol=1e-4)
    ratio = adam_by_hand(True, 10, 40) / adam_by_hand(False, 10, 40)
    assert ratio == pytest.approx(0.26, abs=0.005)


def test_a_small_table_moves_as_under_keras_in_all_rows():
    generator = np.random.default_rng(2)
    start = generator.normal(size=(5, 4)).astype(np.float32)
    steps = [(generator.integers(0, 5, 3), generator.normal(size=(3, 4))) for _ in range(4)]
    actual = []
    for optimizer in (
        tf.keras.optimizers.AdamW(0.1, weight_decay=0.1),
        FusedAdamW(0.1, weight_decay=0.1),
    ):
        table = tf.Variable(start)
        for ids, values in steps:
            gradient = tf.IndexedSlices(
                tf.constant(values, tf.float32), tf.constant(ids), tf.constant([5, 4])
            )
            optimizer.apply_gradients([(gradient, table)])
        actual.append(table.numpy())
    np.testing.assert_allclose(actual[1], actual[0], atol=2e-6 + 4 * 0.1 * KERNEL)


@pytest.mark.parametrize("first", [FusedAdamW, tf.keras.optimizers.AdamW])
def test_checkpoints_of_either_are_read_by_the_other(first, tmp_path):
    second = tf.keras.optimizers.AdamW if first is FusedAdamW else FusedAdamW
    before, after = weights(), weights(seed=1)
    optimizer = first(learning_rate=0.03)
    run(optimizer, before, range(3))
    path = tf.train.Checkpoint(optimizer=optimizer, weights=before).write(str(tmp_path / "point"))
    run(optimizer, before, range(3, 5))
    other = second(learning_rate=0.03)
    other.build(after)
    tf.train.Checkpoint(optimizer=other, weights=after).read(path).assert_consumed()
    run(other, after, range(3, 5))
    for one, two in zip(before, after, strict=True):
        np.testing.assert_allclose(one.numpy(), two.numpy(), atol=2e-6)


def test_the_configuration_comes_back_and_amsgrad_is_rejected():
    optimizer = FusedAdamW(learning_rate=0.1, weight_decay=0.2, clipnorm=3.0, lazy_size=9)
    again = tf.keras.optimizers.deserialize(tf.keras.optimizers.serialize(optimizer))
    assert isinstance(again, FusedAdamW)
    assert again.get_config() == optimizer.get_config()
    assert (again.weight_decay, again.clipnorm) == (0.2, 3.0)
    assert again.lazy_size == 9
    with pytest.raises(ValueError, match="does not support amsgrad"):
        FusedAdamW(amsgrad=True)


REPLICAS = """
import numpy as np
from tfr_moe._compat import tf
cpus = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpus[0], [tf.config.LogicalDeviceConfiguration()] * 2)
from tfr_moe.config import make_config
from tfr_moe.training.optimizers import FusedAdamW, learning_rate_drop

rng = np.random.default_rng(0)
ids, labels = rng.integers(0, 9, [8, 3]), rng.normal(size=[8, 1]).astype("float32")

def trained(strategy):
    tf.keras.utils.set_random_seed(1)
    with strategy.scope():
        ids_in = tf.keras.Input([3], dtype=tf.int64)
        rows = tf.keras.layers.Flatten()(tf.keras.layers.Embedding(9, 4)(ids_in))
        model = tf.keras.Model(ids_in, tf.keras.layers.Dense(1)(rows))
        model.compile(FusedAdamW(0.1, weight_decay=0.1), "mse")
    data = tf.data.Dataset.from_tensor_slices((ids, labels)).batch(8)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    model.fit(data.with_options(options), epochs=3, verbose=0)
    return model.get_weights()

one = trained(tf.distribute.get_strategy())
two = trained(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]))
for a, b in zip(one, two):
    np.testing.assert_allclose(a, b, atol=2e-5)
print("equal")
"""


def test_two_replicas_make_the_steps_of_one(run_python):
    done = run_python(REPLICAS)
    assert done.stdout.strip().endswith("equal"), done.stderr[-2000:]


def test_the_rate_is_a_tenth_after_the_epoch_named():
    config = make_config({"model": "dnn", "learning_rate": 0.5, "learning_rate_drop_epoch": 2})
    [callback] = learning_rate_drop(config)
    rates = [callback.schedule(epoch, 123.0) for epoch in range(4)]  # Keras counts from 0
    assert rates == pytest.approx([0.5, 0.5, 0.05, 0.05])


def test_without_an_epoch_the_rate_stays():
    assert learning_rate_drop(make_config({"model": "dnn"})) == []


@pytest.mark.parametrize("large", [1, 1 << 24])
@pytest.mark.parametrize("axis", [0, 1])
def test_updates_that_save_memory_are_those_of_keras(axis, large, monkeypatch):
    monkeypatch.setattr(optimizers, "_LARGE", large)

    def trained(optimizer):
        rng = np.random.default_rng(3)
        shapes = [3, 2, 2], [3, 5, 2], [4]
        weights = [tf.Variable(rng.normal(size=shape).astype(np.float32)) for shape in shapes]
        unused = tf.Variable(1.0, name="unused")

        @tf.function
        def train():
            with tf.GradientTape() as tape:
                parts = [part for w in weights[:2] for part in tf.unstack(w, axis=axis)]
                parts = [*parts, weights[2]]
                loss = tf.add_n([(i + 1.0) * tf.reduce_sum(p**2) for i, p in enumerate(parts)])
            optimizer.minimize(loss, [unused, *weights], tape)

        for _ in range(3):
            train()
        return [w.numpy() for w in weights], [list(w.shape) for w in optimizer.variables]

    settings = {"learning_rate": 0.1, "weight_decay": 0.5}
    of_keras, shapes_of_keras = trained(tf.keras.optimizers.AdamW(**settings))
    weights, shapes = trained(FusedAdamW(**settings))
    for weight, expected in zip(weights, of_keras, strict=True):
        np.testing.assert_allclose(weight, expected, atol=4e-6)
    assert shapes == shapes_of_keras  # the moments of a checkpoint are in this order
