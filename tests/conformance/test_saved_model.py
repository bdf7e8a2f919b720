"""SavedModels work in a process that has never heard of tfr_moe."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance import registry
from tests.conformance.arrays import draw
from tests.conformance.cases import run, tensors
from tfr_moe._compat import tf

CHILD = """
import sys
from pathlib import Path
import numpy as np
import tensorflow as tf

for folder in sorted(Path({folder!r}).iterdir()):
    inputs = np.load(folder / "inputs.npz", allow_pickle=True)
    signature = tf.saved_model.load(str(folder / "model")).signatures["serving_default"]
    outputs = signature(**{{name: tf.constant(inputs[name]) for name in inputs.files}})
    np.savez(folder / "outputs.npz", **{{name: value.numpy() for name, value in outputs.items()}})
assert not [name for name in sys.modules if name.startswith(("tfr_moe", "tensorflow_ranking"))]
print("done")
"""


def specs(case):
    """One input signature for any number of lists of any length."""
    return {
        name: tf.TensorSpec([None, *array.shape], array.dtype, name=name)
        for name, array in case.inputs.items()
    }


def save_model(case, path):
    model = case.model()

    @tf.function(input_signature=[specs(case)])
    def serve(inputs):
        return model(inputs, training=False)

    model.save(str(path), signatures={"serving_default": serve}, save_traces=False)
    return run(model, draw(case.inputs))


def save_function(path, subject, compute, values, case):
    """A loss or a metric inside a module, as a training step would be exported."""
    module = tf.Module()
    module.subject = subject
    module.compute = tf.function(compute, input_signature=[specs(case)])
    tf.saved_model.save(module, str(path), signatures={"serving_default": module.compute})
    return {name: value.numpy() for name, value in module.compute(tensors(values)).items()}


def save_loss(case, path):
    loss = case.make()
    values = draw(case.inputs)
    return save_function(path, loss, lambda x: {"loss": case.value(loss, x)}, values, case)


def save_metric(case, path):
    metric = case.make()

    def compute(x):
        metric.reset_state()
        return case.value(metric, x)

    return save_function(path, metric, compute, draw(case.inputs), case)


@pytest.mark.smoke
def test_outputs_are_the_same_in_a_fresh_process(tmp_path, run_python):
    expected = {}
    for kind, cases in (
        (save_model, registry.MODELS),
        (save_loss, registry.LOSSES),
        (save_metric, registry.METRICS),
    ):
        for case in cases:
            folder = tmp_path / registry.by_name(case)
            folder.mkdir()
            tf.keras.utils.set_random_seed(2)
            expected[case.name] = folder, kind(case, folder / "model")
            np.savez(folder / "inputs.npz", **draw(case.inputs))
    done = run_python(CHILD.format(folder=str(tmp_path)), TF_CPP_MIN_LOG_LEVEL="3")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["done"]
    for case, (folder, outputs) in expected.items():
        got = np.load(folder / "outputs.npz")
        assert set(got.files) == outputs.keys(), case
        for name, value in outputs.items():
            np.testing.assert_allclose(
                got[name], value, rtol=1e-5, atol=1e-6, err_msg=f"{case}: {name}"
            )
