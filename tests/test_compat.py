"""The framework lanes, each property tested in a fresh process of the lane that runs the tests."""

from __future__ import annotations

import importlib
from importlib import metadata

import pytest

from tfr_moe import _compat
from tfr_moe._compat import needs_legacy_keras

new_lane = pytest.mark.skipif(
    not needs_legacy_keras(), reason="TensorFlow < 2.16 has Keras 2 itself"
)

ONE_TRAINING_STEP = """
from tfr_moe._compat import tf, tfr

context = {"user": tf.io.FixedLenFeature([1], tf.float32, [0.0])}
example = {"price": tf.io.FixedLenFeature([1], tf.float32, [0.0])}

class Scorer(tfr.keras.model.UnivariateScorer):
    def _score_flattened(self, context_features, example_features):
        parts = [*context_features.values(), *example_features.values()]
        return tf.keras.layers.Dense(1)(tf.concat(parts, axis=1))

model = tfr.keras.model.ModelBuilder(
    input_creator=tfr.keras.model.FeatureSpecInputCreator(context, example),
    preprocessor=tfr.keras.model.PreprocessorWithSpec({}),
    scorer=Scorer(),
    mask_feature_name="example_list_mask",
    name="tiny",
).build()
model.compile("sgd", tfr.keras.losses.get("softmax_loss"))
features = {
    "user": tf.constant([[1.0], [2.0]]),
    "price": tf.constant([[[1.0], [2.0]], [[3.0], [0.0]]]),
    "example_list_mask": tf.constant([[True, True], [True, False]]),
}
labels = tf.constant([[1.0, 0.0], [1.0, -1.0]])
before = [w.numpy() for w in model.trainable_weights]
model.fit(features, labels, batch_size=2, epochs=1, verbose=0)
after = [w.numpy() for w in model.trainable_weights]
assert model(features).shape == (2, 2)
assert any((b != a).any() for b, a in zip(before, after)), "no weight moved"
print(hasattr(tf.keras, "ops"), tf.keras.Model.__module__)
"""


def succeeds(done) -> str:
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


@pytest.mark.smoke
def test_a_tfr_model_of_keras_2_trains_one_step_in_either_lane(run_python):
    # Only Keras 3 has `keras.ops`.
    package = "tf_keras" if needs_legacy_keras() else "keras"
    assert succeeds(run_python(ONE_TRAINING_STEP)) == f"False {package}.src.engine.training"


def test_the_lane_follows_from_the_installed_version():
    major, minor = metadata.version("tensorflow").split(".")[:2]
    assert needs_legacy_keras() == ((int(major), int(minor)) >= (2, 16))


def test_a_set_legacy_keras_variable_is_left_alone(run_python):
    source = "import os, tfr_moe\nprint(os.environ.get('TF_USE_LEGACY_KERAS'))"
    assert succeeds(run_python(source, TF_USE_LEGACY_KERAS="True")) == "True"
    assert succeeds(run_python(source)) == ("1" if needs_legacy_keras() else "None")


@pytest.mark.skipif(
    needs_legacy_keras(), reason="new TensorFlow prints before it reads its log level"
)
def test_tensorflow_starts_without_notices_however_it_is_loaded(run_python):
    done = run_python("import tfr_moe\nfrom tensorflow_serving.apis import input_pb2")
    assert succeeds(done) == done.stderr == ""


@pytest.mark.smoke
@new_lane
def test_keras_3_loaded_first_is_rejected_with_a_remedy(run_python):
    done = run_python("import tensorflow as tf\ntf.keras.Model\nfrom tfr_moe._compat import tf")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: tf.keras is already Keras 3")
    assert "import tfr_moe before" in last
    assert "TF_USE_LEGACY_KERAS=1" in last


@new_lane
def test_keras_3_set_by_the_user_is_rejected(run_python):
    done = run_python("from tfr_moe._compat import tf", TF_USE_LEGACY_KERAS="0")
    assert done.returncode == 1
    assert "tf.keras is already Keras 3" in done.stderr.strip().splitlines()[-1]


@new_lane
def test_tensorflow_imported_but_keras_untouched_still_works(run_python):
    source = "import tensorflow\nfrom tfr_moe._compat import tf\nprint(tf.keras.Model.__module__)"
    assert succeeds(run_python(source)).startswith("tf_keras")


@pytest.mark.smoke
@new_lane
def test_the_estimator_stand_in_has_real_constants_and_a_real_namedtuple(run_python):
    succeeds(
        run_python("""
import sys
from tfr_moe._compat import tf
estimator = tf.estimator
assert estimator is tf.compat.v1.estimator is sys.modules["tensorflow.estimator"]
modes = estimator.ModeKeys
assert (modes.TRAIN, modes.EVAL, modes.PREDICT) == ("train", "eval", "infer")
receiver = estimator.export.ServingInputReceiver({"a": 1}, {"b": 2})
assert receiver == ({"a": 1}, {"b": 2}, None)
assert receiver._fields == ("features", "receiver_tensors", "receiver_tensors_alternatives")
import tensorflow.estimator as by_import
assert by_import is estimator
""")
    )


@new_lane
@pytest.mark.parametrize(
    "name", ["Estimator", "RunConfig", "export.build_raw_serving_input_receiver_fn"]
)
def test_any_other_part_of_the_stand_in_raises_on_use(run_python, name: str):
    done = run_python(
        f"from tfr_moe._compat import tf\nthing = tf.estimator.{name}\nprint('named')\nthing(1)"
    )
    assert done.stdout.strip() == "named"
    last = done.stderr.strip().splitlines()[-1]
    assert last == (
        f"RuntimeError: tf.estimator.{name.rpartition('.')[2]} was removed in TensorFlow 2.16"
    )


@new_lane
def test_the_stand_in_is_not_mistaken_for_a_package_with_hidden_names(run_python):
    source = "from tfr_moe._compat import tf\nprint(hasattr(tf.estimator, '__wrapped__'))"
    assert succeeds(run_python(source)) == "False"


@pytest.mark.smoke
def test_keras_tuner_searches_a_tf_keras_model_and_keras_keeps_its_version(run_python, tmp_path):
    done = run_python(f"""
from tfr_moe._compat import import_keras_tuner, needs_legacy_keras, tf
import keras
version = getattr(keras, "version", None)
assert (version is not None) == needs_legacy_keras()  # Keras 3 has one
keras_tuner, again = import_keras_tuner(), import_keras_tuner()
assert keras_tuner is again and getattr(keras, "version", None) is version
from keras_tuner.src.backend.config import multi_backend
assert not multi_backend()

def build(hp):
    units = hp.Int("units", 1, 2)
    model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(units)])
    model.compile("sgd", "mse")
    return model

tuner = keras_tuner.RandomSearch(
    build, objective="val_loss", max_trials=1, directory={str(tmp_path)!r}, project_name="p"
)
x = tf.ones([4, 1])
tuner.search(x, x, epochs=1, validation_data=(x, x), verbose=0)
assert isinstance(tuner.get_best_models()[0], tf.keras.Model)
print(tuner.get_best_hyperparameters()[0].get("units"))
""")
    assert succeeds(done) in ("1", "2")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'torch'"):
        _compat.__getattr__("torch")


def test_a_missing_tensorflow_is_reported(monkeypatch):
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(_compat.metadata, "version", absent)
    with pytest.raises(ImportError, match="tfr_moe needs TensorFlow"):
        needs_legacy_keras()


@pytest.mark.smoke
@pytest.mark.parametrize(
    "name", ["tensorboard", "tensorflow_serving.apis.prediction_service_pb2_grpc"]
)
def test_what_the_pipeline_and_the_server_need_is_installed(name: str):
    assert importlib.import_module(name)


@pytest.mark.smoke
def test_frameworks_of_a_command_load_without_hidden_modules_and_are_no_garbage(run_python):
    succeeds(
        run_python("""
import gc, sys
from tfr_moe import _compat
hidden = "pandas", "scipy", "setuptools", "PIL", "sklearn"
_compat.load_for_a_command(*hidden)
_compat.tfr.keras.losses
assert sys.modules.keys().isdisjoint(hidden)
assert gc.get_freeze_count() > 100_000
from tfr_moe.baselines.rows import library
library("lightgbm", "LightGBM")
library("xgboost", "XGBoost")
assert "scipy" in sys.modules and sys.modules.keys().isdisjoint(["pandas", "sklearn"])
assert library("sklearn.linear_model", "scikit-learn").LogisticRegression
import pandas
assert pandas.DataFrame
""")
    )


@pytest.mark.smoke
def test_deferred_modules_load_when_a_framework_uses_them(run_python, tmp_path):
    succeeds(
        run_python(f"""
import os, sys
from tfr_moe._compat import tf
assert sys.modules.keys().isdisjoint(["requests", "h5py"])
os.chdir({str(tmp_path)!r})
model = tf.keras.Sequential([tf.keras.Input([2]), tf.keras.layers.Dense(1)])
model.save_weights("weights.h5")
saved = [weight.numpy() for weight in model.weights]
model.layers[0].kernel.assign([[7.0], [8.0]])
model.load_weights("weights.h5")
assert (model.weights[0].numpy() == saved[0]).all()
model.save("model.keras")
assert (tf.keras.models.load_model("model.keras").weights[0].numpy() == saved[0]).all()

# It posts to a server that is not there: a warning, not a failure.
monitor = tf.keras.callbacks.RemoteMonitor(root="http://127.0.0.1:9")
monitor.on_epoch_end(0, {{"loss": 1.0}})
import h5py, requests
assert type(requests) is type(h5py) is type(os)
""")
    )
