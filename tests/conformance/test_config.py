"""A configuration is complete JSON, and Keras finds the class under the package `tfr_moe`."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from tests.conformance import registry
from tests.conformance.arrays import draw
from tests.conformance.cases import call_layer, copied, named, through_json, through_keras
from tests.conformance.steps import run
from tfr_moe._compat import tf


def assert_same_outputs(case, model):
    got = run(model, draw(case.inputs))
    assert got.keys() == case.scored.keys() == case.outputs.keys()
    for name, expected in case.scored.items():
        np.testing.assert_array_equal(got[name], expected, err_msg=name)


def vectors_of(case):
    """Names of the inputs that a layer before this one could give."""
    return [name for name, a in case.inputs.items() if a.dtype == "float32" and a.width]


OF_SEVERAL_LAYERS = [
    case for case in registry.LAYERS if case.call is call_layer and len(vectors_of(case)) > 1
]


def assert_same_object(copy, subject):
    assert type(copy) is type(subject)
    assert copy.get_config() == subject.get_config()


@pytest.mark.parametrize("case", registry.LAYERS, ids=registry.by_name)
def test_from_config_makes_the_same_layer(case):
    subject = case.make()
    assert_same_object(type(subject).from_config(through_json(subject.get_config())), subject)


@pytest.mark.parametrize("case", registry.MODELS, ids=registry.by_name)
def test_copies_have_the_same_config_and_outputs(case):
    subject = case.make()
    assert_same_object(copied(subject), subject)
    model = case.again.model
    model.set_weights(case.shared.get_weights())
    assert_same_outputs(case, model)


@pytest.mark.parametrize("case", registry.SCORERS, ids=registry.by_name)
def test_keras_saves_and_loads_the_models_of_scorers(case, tmp_path):
    case.shared.save(str(tmp_path / "model.keras"))
    assert_same_outputs(case, tf.keras.models.load_model(str(tmp_path / "model.keras")))


@pytest.mark.parametrize("case", OF_SEVERAL_LAYERS, ids=registry.by_name)
def test_a_loaded_model_keeps_apart_the_layers_before_positional_tensors(case, tmp_path):
    layer = case.make()
    tensors = {
        name: tf.keras.Input(array.shape, dtype=array.dtype, name=name)
        for name, array in case.inputs.items()
    }
    before = {name: tf.keras.layers.Dense(case.inputs[name].width) for name in vectors_of(case)}
    given = {name: before.get(name, lambda x: x)(tensor) for name, tensor in tensors.items()}
    parameters = [name for name in inspect.signature(layer.call).parameters if name in given]
    outputs = layer(*(given[name] for name in parameters))
    model = tf.keras.Model(tensors, named(outputs))
    model.save(str(tmp_path / "model.keras"))
    loaded = tf.keras.models.load_model(str(tmp_path / "model.keras"))
    values = draw(case.inputs)
    for name, expected in run(model, values).items():
        np.testing.assert_array_equal(run(loaded, values)[name], expected, err_msg=name)


def test_a_layer_rejects_a_tensor_given_twice_and_one_too_many():
    case = OF_SEVERAL_LAYERS[0]
    tensors = list(draw(case.inputs).values())
    with pytest.raises(TypeError, match="multiple values for argument"):
        case.make()(*tensors, **dict([list(draw(case.inputs).items())[1]]))
    with pytest.raises(TypeError, match="too many positional arguments"):
        case.make()(*tensors, *tensors, *tensors)


@pytest.mark.parametrize("case", registry.LOSSES, ids=registry.by_name)
def test_keras_finds_losses_again(case):
    loss = case.make()
    copy = through_keras(loss)
    assert copy.get_config() == loss.get_config()
    values = draw(case.inputs)
    assert float(case.value(copy, values)) == float(case.value(loss, values))


@pytest.mark.parametrize("case", registry.METRICS, ids=registry.by_name)
def test_keras_finds_metrics_again(case):
    metric = case.make()
    copy = through_keras(metric)
    assert copy.get_config() == metric.get_config()
    values = draw(case.inputs)
    expected, got = case.value(metric, values), case.value(copy, values)
    assert got.keys() == expected.keys()
    for name in expected:
        assert float(got[name]) == float(expected[name])


@pytest.mark.parametrize("case", registry.LAYERS, ids=registry.by_name)
def test_the_config_names_every_argument_of_the_constructor(case):
    subject = case.make()
    arguments = type(subject).__init__.__code__.co_varnames[
        1 : type(subject).__init__.__code__.co_argcount
    ]
    assert set(arguments) <= subject.get_config().keys()
