"""Exports that differ from the trained model, each compared with it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.tiny import SMALL, TASKS, lists, write_data_folder
from tfr_moe._compat import tf
from tfr_moe.config import make_config
from tfr_moe.encoding import ListEncoder
from tfr_moe.errors import UserError
from tfr_moe.release import export_run
from tfr_moe.serving.graph import load_meta_graph
from tfr_moe.training import load_run, train
from tfr_moe.variants import ExportOptions, applied, as_precision, read_categories


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A mixture of two experts of six, one gated by parent and child, and one with a gate per task."""
    root = tmp_path_factory.mktemp("runs")
    data = write_data_folder(root / "data", 64, 40, 40, TASKS)
    settings = {**SMALL, "num_epochs": 1, "num_experts": 6, "top_k": 2, "tower_hidden_dims": (4,)}
    kinds = {
        "adv_hsc_moe": {"model": "adv_hsc_moe"},
        "residual": {"model": "adv_hsc_moe", "gate_residual": True, "shared_expert": True},
        "category_mmoe": {"model": "category_mmoe"},
    }
    for name, kind in kinds.items():
        train(data, root / name, make_config({**settings, **kind}))
    return {name: root / name for name in kinds}


def requests(count: int = 12, top: str | None = None) -> list[bytes]:
    encoder = ListEncoder(TASKS)
    return [
        encoder.encode(list_id, context, items)
        for list_id, context, items in lists(count, 9)
        if top is None or context["top"] == top
    ]


def rank(version: Path, serialized: list[bytes]) -> dict[str, np.ndarray]:
    answer = tf.saved_model.load(str(version)).signatures["rank"](inputs=tf.constant(serialized))
    return {name: value.numpy() for name, value in answer.items()}


@pytest.fixture(scope="module")
def plain(runs, tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("plain")
    return {name: export_run(run, root / name) for name, run in runs.items()}


def test_everything_at_once_answers_as_the_plain_export(runs, plain, tmp_path):
    """A fixed size, a folded gate and category a alone: the same scores, experts and order."""
    options = ExportOptions(list_size=9, fold_gate=True, categories=("a",))
    for name, run in runs.items():
        version = export_run(run, tmp_path / name, options=options)
        found = rank(version, requests(top="a"))
        expected = rank(plain[name], requests(top="a"))
        assert found.keys() == expected.keys()
        assert found["scores"].shape[1] == 9
        for key, values in expected.items():
            given = found[key][:, : values.shape[1]] if found[key].ndim > 1 else found[key]
            np.testing.assert_allclose(given, values, rtol=1e-5, atol=1e-5, err_msg=key)
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"without the category.*b > "):
            rank(version, requests(top="b"))
        details = json.loads((version / "assets.extra" / "details.json").read_text())
        assert details["options"]["list_size"] == 9
        card = (version / "assets.extra" / "model_card.md").read_text()
        assert "Only for 2 sub-categories (a); others are refused." in card


def test_pruning_leaves_out_what_only_other_categories_need(runs, plain, tmp_path):
    run = load_run(runs["adv_hsc_moe"])
    small = applied(run, ExportOptions(categories=("a > x",)))
    assert small.categories == ["a > x"]
    assert len(small.experts) == 2  # K: one category chooses no more
    towers = small.run.model.get_layer("mixture").towers
    whole = run.model.get_layer("mixture").towers
    for new, old in zip(towers.kernels, whole.kernels, strict=True):
        np.testing.assert_array_equal(new, tf.convert_to_tensor(old).numpy()[small.experts])
    embeddings = small.run.model.get_layer("features").embeddings
    assert embeddings["sub"].input_dim == 2  # out of vocabulary, and a > x
    assert embeddings["top"].input_dim == 2


def one_request(top: str, sub: str) -> bytes:
    _, context, items = next(iter(lists(1, 9)))
    return ListEncoder(TASKS).encode("q", {**context, "top": top, "sub": sub}, items)


@pytest.mark.parametrize("name", ["adv_hsc_moe", "residual"])
def test_lists_of_other_categories_may_count_as_unknown(runs, plain, tmp_path, name):
    options = ExportOptions(categories=("a",), unknown_categories=True)
    version = export_run(runs[name], tmp_path / "shop", options=options)
    for asked, counts_as in (
        (("b", "x"), ("never", "x")),
        (("never", "x"), ("never", "x")),
        (("a", "new"), ("a", "new")),
    ):
        np.testing.assert_allclose(
            rank(version, [one_request(*asked)])["scores"],
            rank(plain[name], [one_request(*counts_as)])["scores"],
            rtol=1e-5,
        )


def test_a_folded_gate_knows_a_new_sub_category_by_its_parent(runs, plain, tmp_path):
    """A new sub-category of a, one of b, and one of a new parent."""
    version = export_run(runs["residual"], tmp_path / "shop", options=ExportOptions(fold_gate=True))
    weights = []
    for top in ("a", "b", "never"):
        found, expected = (rank(v, [one_request(top, "new")]) for v in (version, plain["residual"]))
        weights.append(found["expert_weights"])
        for key, values in expected.items():
            np.testing.assert_allclose(found[key], values, rtol=1e-5, atol=1e-6, err_msg=key)
    assert not np.allclose(weights[0], weights[1])


def test_bfloat16_halves_the_towers_and_keeps_the_experts(runs, plain, tmp_path):
    """Scores within 2^-5 of the largest, which the export itself has checked."""
    options = ExportOptions(precision="bfloat16")
    version = export_run(runs["adv_hsc_moe"], tmp_path / "shop", options=options)
    found, expected = (rank(v, requests()) for v in (version, plain["adv_hsc_moe"]))
    np.testing.assert_array_equal(found["expert_ids"], expected["expert_ids"])
    shapes = dict(tf.train.list_variables(str(version / "variables" / "variables")))
    reader = tf.train.load_checkpoint(str(version / "variables" / "variables"))
    types = reader.get_variable_to_dtype_map()
    kernels = [name for name, shape in shapes.items() if len(shape) == 3]
    assert len(kernels) == 3
    assert {types[name] for name in kernels} == {tf.bfloat16}
    details = json.loads((version / "assets.extra" / "details.json").read_text())
    assert 0 < details["verified"]["largest_difference"] <= details["verified"]["allowed"]


def test_a_fixed_size_compiles_the_towers_and_refuses_longer_lists(runs, tmp_path):
    version = export_run(runs["adv_hsc_moe"], tmp_path / "shop", options=ExportOptions(list_size=4))
    functions = load_meta_graph(version).graph_def.library.function
    assert any(f.attr["_XlaMustCompile"].b for f in functions)
    long = next(r for r in requests(40) if rank_size(r) > 4)
    with pytest.raises(tf.errors.InvalidArgumentError, match="this model takes at most 4"):
        rank(version, [long])


def rank_size(serialized: bytes) -> int:
    from tensorflow_serving.apis import input_pb2

    return len(input_pb2.ExampleListWithContext.FromString(serialized).examples)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (ExportOptions(list_size=0), "--list-size must be above 0, got 0"),
        (ExportOptions(unknown_categories=True), "is for an export with --categories"),
        (ExportOptions(categories=("aa",)), "knows no category 'aa'; did you mean 'a'"),
    ],
)
def test_options_that_can_not_be_are_refused(runs, options, message):
    with pytest.raises(UserError, match=message):
        applied(load_run(runs["adv_hsc_moe"]), options)


def test_only_a_gate_on_the_category_can_be_folded(tmp_path):
    data = write_data_folder(tmp_path / "data", 32, 16, 16)
    settings = {**SMALL, "num_epochs": 1, "model": "moe", "gate_features": ("sub", "top")}
    train(data, tmp_path / "run", make_config(settings))
    with pytest.raises(UserError, match="sees more than the category"):
        applied(load_run(tmp_path / "run"), ExportOptions(fold_gate=True))


def test_precisions_are_named():
    assert as_precision("bfloat16") == "bfloat16"
    with pytest.raises(UserError, match="one of float32, bfloat16, got 'half'"):
        as_precision("half")


def test_categories_come_from_a_file_with_comments(tmp_path):
    (tmp_path / "c.txt").write_text("# ours\na\n\n b > x \n")
    assert read_categories(tmp_path / "c.txt") == ("a", "b > x")
    (tmp_path / "none.txt").write_text("# nothing\n")
    for name, message in (("none.txt", "names no category"), ("gone.txt", "cannot be read")):
        with pytest.raises(UserError, match=message):
            read_categories(tmp_path / name)
