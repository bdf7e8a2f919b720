"""The serving graph of every model name, and its scores against those that `evaluate` judges."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from tensorflow_serving.apis import input_pb2

from tests.scorers.batch import RERANKING
from tests.serving.models import operations_of
from tests.tiny import SCHEMA, SMALL, TASKS, small_config, write_data_folder
from tfr_moe._compat import tf
from tfr_moe.config import MODEL_NAMES, MULTITASK_NAMES
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.evaluation.scoring import score_dataset, score_tasks
from tfr_moe.scorers import combined_model, create, explanation_model
from tfr_moe.serving.export import export_run
from tfr_moe.serving.export.signatures import build
from tfr_moe.serving.versions import load_meta_graph
from tfr_moe.training import load_run, train

SETTINGS: dict[str, Any] = {
    **RERANKING,
    "embedding_dim": 4,
    "expert_hidden_dims": (16, 8),
    "seed": 1,
    "num_experts": 4,
    "top_k": 2,
    "dropout": 0.3,
    "embedding_l2": 0.1,
    "num_adversarial": 1,
    "importance_weight": 0.1,
    "tower_hidden_dims": (4,),
    "tensor_ranks": (3, 3, 2),
}
# Calls back into Python, random numbers, writes to variables and tables.
NEVER_SERVED = re.compile(
    r"PyFunc|Random|Multinomial|Normal(V2)?$|Rng|Uniform(Int|FullInt)?$|^StatefulUniform|^Assign"
    r"|^Resource(Apply|Scatter|StridedSliceAssign)|^LookupTable(Insert|Remove)"
)
TRAINING_ONLY = ("adversarial", "constraint_gate", "hsc", "noise", "dropout", "monitor", "usage")
ALWAYS = ("dnn", "adv_hsc_moe", "mmoe", "category_mmoe")
NAMES = [n if n in ALWAYS else pytest.param(n, marks=pytest.mark.slow) for n in MODEL_NAMES]


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[bool, DataFolder]:
    """A data set with one label, and one with two."""
    root = tmp_path_factory.mktemp("data")
    return {
        several: DataFolder(write_data_folder(root / f"{several}", 64, 40, 40, schema))
        for several, schema in ((False, SCHEMA), (True, TASKS))
    }


def evaluated(ranker: Any, folder: DataFolder, tasks: list[str]) -> dict[str, dict[str, Any]]:
    """Per list id the scores by which `evaluate` judges, by output."""
    dataset = ElwcDatasetBuilder(folder, 16, tasks=tasks).build_evaluation_dataset("test")
    if tasks:
        outputs = {task: f"scores_{task}" for task in tasks}
        batches = score_tasks(ranker, dataset, folder.schema, outputs)
    else:
        batches = ({"": batch} for batch in score_dataset(ranker, dataset, folder.schema))
    result: dict[str, dict[str, Any]] = {}
    for by_task in batches:
        for task, batch in by_task.items():
            for list_id, scores, mask in zip(batch.list_ids, batch.scores, batch.mask, strict=True):
                result.setdefault(list_id, {})[f"scores_{task}" if task else "scores"] = scores[
                    mask
                ]
    return result


def assert_same_scores(loaded: Any, folder: DataFolder, expected: dict[str, dict[str, Any]]):
    """1e-5, absolute and relative: float32 in another order of operations."""
    predict = loaded.signatures["serving_default"]
    compared = 0
    for serialized in ElwcDatasetBuilder(folder).serialized_lists("test").batch(7):
        result = {k: v.numpy() for k, v in predict(inputs=serialized).items()}
        for row, one in enumerate(serialized.numpy()):
            proto = input_pb2.ExampleListWithContext.FromString(one)
            list_id = proto.context.features.feature["query_id"].bytes_list.value[0].decode()
            for name, scores in expected[list_id].items():
                given = result[name][row, : len(scores)]
                np.testing.assert_allclose(given, scores, rtol=1e-5, atol=1e-5)
                compared += 1
    assert compared == sum(len(outputs) for outputs in expected.values()) >= 40


def assert_heaviest_first(loaded: Any, folder: DataFolder):
    """The experts of `rank`, which clients show in this order."""
    rank = loaded.signatures["rank"]
    for serialized in ElwcDatasetBuilder(folder).serialized_lists("test").batch(7):
        for output, values in rank(inputs=serialized).items():
            if output.startswith("expert_weights"):
                assert (np.diff(values, axis=-1) <= 0).all(), output


@pytest.mark.parametrize("name", NAMES)
def test_what_only_training_needs_is_gone_and_scores_are_evaluates(name, folders, tmp_path):
    several = name in MULTITASK_NAMES
    folder = folders[several]
    tasks = list(TASKS.labels) if several else []
    model = create(name, folder.schema, folder.tables(), SETTINGS).build_model()
    ranker = combined_model(model, dict.fromkeys(model.output, 1.0)) if several else model
    module, signatures = build(ranker, folder.schema, explanation_model(ranker))
    version = tmp_path / "1"
    tf.saved_model.save(module, str(version), signatures=signatures)
    operations = operations_of(signatures.values())
    assert {op for op in operations if not hasattr(tf.raw_ops, op)} == set()
    assert [op for op in operations if NEVER_SERVED.search(op)] == []
    graph = load_meta_graph(version).graph_def
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    assert len(nodes) > 100
    variables = [variable.name for variable in module.used_variables]
    # An attention layer leaves an Identity where its dropout was.
    working = [node.name for node in nodes if node.op != "Identity"]
    for actual in (*working, *variables):
        parts = actual.lower().split("/")
        assert not [part for part in parts if part.startswith(TRAINING_ONLY)], actual
    loaded = tf.saved_model.load(str(version))
    assert_same_scores(loaded, folder, evaluated(ranker, folder, tasks))
    assert_heaviest_first(loaded, folder)


@pytest.mark.slow
def test_the_export_of_a_run_scores_as_evaluate_does(folders, tmp_path):
    name, folder = "category_mmoe", folders[True]
    settings = {**SMALL, "model": name, "num_epochs": 1, "dropout": 0.2}
    train(folder.path, tmp_path / "run", small_config(settings))
    version = export_run(tmp_path / "run", tmp_path / "shop")
    run = load_run(tmp_path / "run")
    expected = evaluated(run.served_model(), folder, [task.name for task in run.tasks])
    assert_same_scores(tf.saved_model.load(str(version)), folder, expected)
    details = json.loads((version / "assets.extra" / "details.json").read_text())
    assert details["config"]["model"] == name
    assert details["data"]["splits"]["validation"]["lists"] == 40
