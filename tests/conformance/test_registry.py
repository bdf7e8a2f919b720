"""Every public layer, scorer, loss and metric has a case; a new one without a case fails."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
import types

import pytest

import tfr_moe
from tests.conformance.registry import EVERYTHING, registered_classes
from tfr_moe import layers, losses, scorers
from tfr_moe._compat import tf, tfr
from tfr_moe.layers.base import ConfiguredLayer

OUTER = ("beam", "serving", "tuning")


def all_modules():
    """Every module of the installed package, imported; one that can't be is an error."""
    roots = [tfr_moe, *(importlib.import_module(f"tfr_moe.{name}") for name in OUTER)]
    names = {root.__name__ for root in roots}
    for root in roots:
        names |= {m.name for m in pkgutil.walk_packages(root.__path__, f"{root.__name__}.")}
    return [importlib.import_module(name) for name in sorted(names) if "__main__" not in name]


def kinds():
    return (
        tf.keras.layers.Layer,
        tf.keras.losses.Loss,
        tf.keras.metrics.Metric,
        tfr.keras.model.Scorer,
    )


def classes_of(modules):
    """Public concrete layers, losses, metrics and scorers that are defined in the modules."""
    return {
        value
        for module in modules
        for name, value in vars(module).items()
        if inspect.isclass(value)
        and value.__module__ == module.__name__
        and issubclass(value, kinds())
        and not name.startswith("_")
        and not inspect.isabstract(value)
        and value is not ConfiguredLayer
    }


def names_of(classes):
    return sorted(f"{c.__module__}.{c.__qualname__}" for c in classes)


@pytest.mark.smoke
def test_every_public_class_is_registered():
    missing = classes_of(all_modules()) - registered_classes()
    assert not missing, f"no row in tests/conformance/registry/: {names_of(missing)}"


def test_every_exported_class_is_registered_or_a_plain_record():
    exported = [getattr(m, name) for m in (layers, scorers) for name in m.__all__]
    classes = {value for value in exported if inspect.isclass(value)}
    records = {value for value in classes if issubclass(value, tuple)}
    abstract = {value for value in classes if inspect.isabstract(value)}
    missing = classes - records - abstract - registered_classes()
    assert not missing, names_of(missing)
    assert set(losses.LOSSES.values()) <= registered_classes()


def test_a_new_public_class_without_a_row_would_be_found():
    module = types.ModuleType("tfr_moe.new")
    source = (
        "from tfr_moe._compat import tf, tfr\n"
        "from tfr_moe.layers import ItemTower\n"
        "class NewLayer(ItemTower): pass\n"
        "class NewLoss(tf.keras.losses.Loss): pass\n"
        "class NewMetric(tf.keras.metrics.Mean): pass\n"
        "class NewScorer(tfr.keras.model.UnivariateScorer):\n"
        "    def _score_flattened(self, context_features, example_features): return None\n"
        "class _Helper(tf.keras.layers.Layer): pass\n"
        "class Record: pass\n"
    )
    exec(source, module.__dict__)
    actual = classes_of([module]) - registered_classes()
    assert {c.__name__ for c in actual} == {"NewLayer", "NewLoss", "NewMetric", "NewScorer"}


def test_the_walk_reaches_the_packages_beside_the_core():
    actual = {module.__name__ for module in all_modules()}
    assert {"tfr_moe.layers.mixture", "tfr_moe.beam.build", "tfr_moe.serving.client"} <= actual
    assert actual <= set(sys.modules)


def test_no_two_rows_have_the_same_name():
    names = [case.name for case in EVERYTHING]
    assert len(names) == len(set(names))
