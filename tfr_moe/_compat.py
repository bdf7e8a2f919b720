"""The only module that asks which TensorFlow and Keras are installed.

TensorFlow Ranking is written for Keras 2 and for a TensorFlow that still has `tf.estimator`. Up to
TensorFlow 2.15 both are there. From 2.16 on, `tf.keras` is Keras 3 unless `TF_USE_LEGACY_KERAS` is
set before it is first touched, and `tensorflow.estimator` is gone, at which TensorFlow Ranking
fails at import. Importing this module costs no TensorFlow import: it only sets variables. The
frameworks load at the first access of an attribute:

    from tfr_moe._compat import tf, tfr
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import gc
import importlib
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tensorflow as tf
    import tensorflow_ranking as tfr

__all__ = [
    "import_keras_tuner",
    "lazy_names",
    "light_import",
    "load_for_a_command",
    "needs_legacy_keras",
    "tf",
    "tfr",
]


def needs_legacy_keras() -> bool:
    """Whether the installed TensorFlow has Keras 3 as `tf.keras` and no `tf.estimator`."""
    try:
        major, minor = metadata.version("tensorflow").split(".")[:2]
    except metadata.PackageNotFoundError as error:
        raise ImportError("tfr_moe needs TensorFlow: pip install tensorflow") from error
    return (int(major), int(minor)) >= (2, 16)


def _estimator_stand_in() -> types.ModuleType:
    """An inert `tensorflow.estimator`: what TFR reads at import is real, the rest raises on use."""
    estimator = types.ModuleType("tensorflow.estimator")
    export = types.ModuleType("tensorflow.estimator.export")

    class ModeKeys:
        TRAIN = "train"
        EVAL = "eval"
        PREDICT = "infer"

    def removed(name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)

        def refuse(self: Any, *args: Any, **kwargs: Any) -> None:
            raise RuntimeError(f"tf.estimator.{name} was removed in TensorFlow 2.16")

        return type(name, (), {"__init__": refuse})

    # The names are set through __dict__ because the type checker does not know them.
    export.__dict__["ServingInputReceiver"] = collections.namedtuple(
        "ServingInputReceiver",
        ["features", "receiver_tensors", "receiver_tensors_alternatives"],
        defaults=(None,),
    )
    export.__dict__["__getattr__"] = removed
    estimator.__dict__.update(ModeKeys=ModeKeys, export=export, __getattr__=removed)
    return estimator


def _leave_quietly() -> None:
    """Keeps functions that live to the end of the process from counting references to what is gone.

    Up to TensorFlow 2.15 each of them prints a TypeError on stderr when the interpreter takes its
    modules down before it.
    """
    functions = sys.modules.get("tensorflow.python.eager.polymorphic_function.atomic_function")
    if functions is not None and hasattr(functions, "AtomicFunction"):
        functions.AtomicFunction.__del__ = lambda self: None


# The frameworks import these at their start and rarely use them.
_DEFERRED = ("requests", "h5py")
_hidden: tuple[str, ...] = ()


def load_for_a_command(*hidden: str) -> None:
    """Has the frameworks load faster in a process that runs one command.

    After each load all objects are exempt from garbage collection, whose next search would go
    through them. And the frameworks load as if the hidden, optional modules were not installed:
    Keras imports pandas, SciPy and Pillow, for data frames, sparse matrices and images, where it
    finds them; TensorFlow loads setuptools in place of the standard library's distutils: together a
    third of the import of TensorFlow. Beam looks for pandas, too; LightGBM and XGBoost look for
    pandas and scikit-learn, which take longer than they. Modules that are imported already are not
    hidden.
    """
    global _hidden
    _hidden = hidden


class _Deferred(types.ModuleType):
    """Stands for a module that is imported when one of its names is first used."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


@contextlib.contextmanager
def light_import(*needed: str) -> Iterator[None]:
    """Hides or defers other modules and suspends the garbage collector while a framework loads.

    An import makes many objects and hardly any garbage; the search for it takes a fifth of the
    import of the frameworks. Modules that are `needed` are not hidden.
    """
    enabled = gc.isenabled()
    gc.disable()
    stand_ins: dict[str, Any] = {name: _Deferred(name) for name in _DEFERRED}
    stand_ins |= dict.fromkeys(set(_hidden).difference(needed))  # None stops an import
    used = {name: module for name, module in stand_ins.items() if name not in sys.modules}
    sys.modules.update(used)
    try:
        yield
    finally:
        for name, module in used.items():
            if sys.modules.get(name) is module:
                sys.modules.pop(name, None)
        if _hidden:
            gc.freeze()
        if enabled:
            gc.enable()


def _load_tensorflow() -> types.ModuleType:
    with light_import():
        tensorflow: Any = importlib.import_module("tensorflow")
    if not needs_legacy_keras():
        atexit.register(_leave_quietly)
        return tensorflow
    if not tensorflow.keras.Model.__module__.startswith("tf_keras"):
        raise ImportError(
            "tf.keras is already Keras 3 in this process: import tfr_moe before anything touches "
            "tf.keras, or set the environment variable TF_USE_LEGACY_KERAS=1 before Python starts"
        )
    if not hasattr(tensorflow, "estimator"):
        stand_in = _estimator_stand_in()
        sys.modules["tensorflow.estimator"] = stand_in
        sys.modules["tensorflow.estimator.export"] = stand_in.__dict__["export"]
        tensorflow.estimator = stand_in
        tensorflow.compat.v1.estimator = stand_in
    return tensorflow


def _load_ranking() -> types.ModuleType:
    _load_tensorflow()
    with light_import():
        return importlib.import_module("tensorflow_ranking")


def import_keras_tuner() -> types.ModuleType:
    """Imports KerasTuner so that it takes the models of `tf.keras`.

    KerasTuner looks for `keras.version` to decide for Keras 3; where `tf.keras` is tf_keras the
    attribute is hidden while KerasTuner is imported, then restored.
    """
    _load_tensorflow()
    keras = importlib.import_module("keras")
    version = keras.__dict__.pop("version", None)
    try:
        return importlib.import_module("keras_tuner")
    finally:
        if version is not None:
            keras.__dict__["version"] = version


def lazy_names(
    package: str, names: Mapping[str, Sequence[str]]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Makes `__all__`, `__getattr__` and `__dir__` of a package, of its public names by module.

    Its modules, and what they import, load when one of their names is first used.
    """
    module_of = {name: module for module, of_module in names.items() for name in of_module}
    public = sorted(module_of)

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{module_of[name]}"), name)

    return public, get, lambda: public


def __getattr__(name: str) -> Any:
    loaders = {"tf": _load_tensorflow, "tfr": _load_ranking}
    if name not in loaders:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = loaders[name]()
    return globals()[name]


# TensorFlow's C++ start-up notices are no news to anyone who runs a command. They come at whatever
# loads TensorFlow first, which may be the protos of tensorflow_serving.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if needs_legacy_keras():
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
