"""SavedModels work in a process that has never heard of tfr_moe."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from tests.conformance import registry
from tests.conformance.arrays import draw
from tests.conformance.cases import LossCase, MetricCase, ModelCase
from tests.conformance.steps import tensors
from tfr_moe._compat import tf

CHILD = """
import gc, sys
gc.set_threshold(50_000, 20, 50)
from pathlib import Path
import numpy as np
import tensorflow as tf

for line in sys.stdin:
    folder = Path(line.strip())
    inputs = np.load(folder / "inputs.npz", allow_pickle=True)
    signature = tf.saved_model.load(str(folder / "model")).signatures["serving_default"]
    outputs = signature(**{name: tf.constant(inputs[name]) for name in inputs.files})
    np.savez(folder / "outputs.npz", **{name: value.numpy() for name, value in outputs.items()})
    assert not [name for name in sys.modules if name.startswith(("tfr_moe", "tensorflow_ranking"))]
    print("done", flush=True)
"""


@pytest.fixture(scope="module")
def outsider():
    """A process without tfr_moe that calls the SavedModel of each folder that it reads."""
    environment = {k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"}
    with subprocess.Popen(
        [sys.executable, "-c", CHILD],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        yield child
        child.stdin.close()


def specs(case):
    """One input signature for any number of lists of any length."""
    return {
        name: tf.TensorSpec([None, *array.shape], array.dtype, name=name)
        for name, array in case.inputs.items()
    }


def save_model(case, path):
    model = case.shared

    @tf.function(input_signature=[specs(case)])
    def serve(inputs):
        return model(inputs, training=False)

    model.save(str(path), signatures={"serving_default": serve}, save_traces=False)
    return case.scored


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


SAVE = {ModelCase: save_model, LossCase: save_loss, MetricCase: save_metric}


# The second lane saves scorers, losses and metrics; single layers are saved in the first only.
CASES = [
    pytest.param(case, marks=() if case in registry.LAYERS else pytest.mark.smoke)
    for case in registry.EVERYTHING
]


@pytest.mark.parametrize("case", CASES, ids=registry.by_name)
def test_outputs_are_the_same_in_a_process_without_tfr_moe(case, tmp_path, outsider):
    expected = SAVE[type(case)](case, tmp_path / "model")
    np.savez(tmp_path / "inputs.npz", **draw(case.inputs))
    print(tmp_path, file=outsider.stdin, flush=True)
    assert outsider.stdout.readline() == "done\n"
    got = np.load(tmp_path / "outputs.npz")
    assert set(got.files) == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
