"""Operations of the serving graph: what is there, and what is rejected."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.serving.models import SHOP, inputs_of, operations_of
from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.serving.export import export_model
from tfr_moe.serving.versions import load_meta_graph


@pytest.mark.parametrize("model", ["plain", "mixture", "itemwise"])
def test_an_export_runs_only_operations_of_tensorflow(models: Path, model: str):
    loaded = tf.saved_model.load(str(models / model / "1"))
    operations = operations_of(loaded.signatures.values())
    assert {op for op in operations if not hasattr(tf.raw_ops, op)} == set()
    # Those of called functions are there: parsing, lookups and the towers.
    assert {"DecodeProtoV2", "ParseExampleV2", "LookupTableFindV2", "MatMul"} <= operations
    assert "TopKV2" in operations


def test_dropout_left_nothing_in_the_file(models: Path):
    graph = load_meta_graph(models / "plain" / "1").graph_def
    nodes = [n for function in graph.library.function for n in function.node_def]
    assert not [n.op for n in nodes if "Random" in n.op or "PyFunc" in n.op]


class Noisy(tf.keras.layers.Layer):
    def call(self, x):
        return x + tf.random.normal(tf.shape(x))


class Calling(tf.keras.layers.Layer):
    def call(self, x):
        same = tf.numpy_function(lambda value: value, [x], tf.float32)
        return tf.ensure_shape(same, x.shape)


@pytest.mark.parametrize(
    ("layer", "fault"),
    [(Noisy, "differ by"), (Calling, "does not run in a fresh process")],
)
def test_a_graph_that_cannot_serve_is_rejected_and_leaves_no_version(tmp_path, layer, fault):
    inputs = inputs_of(SHOP)
    logits = layer()(inputs["example_numeric"])[..., 0]
    with pytest.raises(UserError, match=fault):
        export_model(tf.keras.Model(inputs, logits), SHOP, tmp_path / "shop")
    assert list((tmp_path / "shop").iterdir()) == []
