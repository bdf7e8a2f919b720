"""What an export leaves on disk, and when it leaves nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tensorflow_serving.apis import input_pb2

from tests.serving.conftest import WARMUP, elwc, shop_items
from tests.serving.models import SHOP, inputs_of, mixture, scorer, towers
from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema
from tfr_moe.serving.export import export_model
from tfr_moe.serving.export.export import example_lists, free_version
from tfr_moe.serving.versions import read_log


def contents(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def test_an_export_is_a_complete_version(models: Path):
    assert [p.name for p in (models / "plain").iterdir()] == ["1"]
    assert contents(models / "plain" / "1") >= {
        "saved_model.pb",
        "variables/variables.index",
        "assets.extra/tf_serving_warmup_requests",
        "assets.extra/schema.json",
        "assets.extra/details.json",
    }


def test_the_schema_and_the_details_travel_with_the_model(models: Path):
    extra = models / "plain" / "1" / "assets.extra"
    assert FeatureSchema.load(extra / "schema.json") == SHOP
    details = json.loads((extra / "details.json").read_text())
    assert details["data"] == "shop"
    assert details["tensorflow"] == tf.__version__


def test_an_export_has_the_permissions_of_the_umask(models: Path):
    mask = os.umask(0)
    os.umask(mask)
    assert (models / "plain" / "1").stat().st_mode & 0o777 == 0o777 & ~mask


@pytest.mark.smoke
def test_an_export_runs_where_only_tensorflow_is_imported(models: Path):
    script = """
import sys, tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
assert not [m for m in sys.modules if m.startswith(("tfr_moe", "tensorflow_ranking"))]
print(sorted(model.signatures), model.signatures["rank"].structured_outputs.keys())
"""
    run = subprocess.run(
        [sys.executable, "-c", script, str(models / "mixture" / "1")],
        cwd=models,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=True,
    )
    for name in ("rank", "serving_default", "tensorflow/serving/predict", "expert_weights"):
        assert name in run.stdout


def test_the_warm_up_file_holds_plain_predict_logs_of_both_signatures(models: Path):
    path = models / "plain" / "1" / "assets.extra" / "tf_serving_warmup_requests"
    requests = [log.request for log in read_log(path)]
    assert [r.model_spec.signature_name for r in requests] == [
        "tensorflow/serving/predict",
        "rank",
    ] * 3
    assert {r.model_spec.name for r in requests} == {"plain"}
    assert [r.inputs["inputs"].string_val[0] for r in requests[::2]] == WARMUP
    assert path.read_bytes()[:2] != b"\x1f\x8b"  # gzip


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A version beside an earlier one, with many warm-up lists; the folder's inode before it."""
    out = tmp_path_factory.mktemp("later") / "shop"
    (out / "41").mkdir(parents=True)
    before = out.stat().st_ino
    return export_model(scorer(), SHOP, out, warmup=[WARMUP[0]] * 501), before


def test_a_warm_up_file_has_at_most_1000_records(later: tuple[Path, int]):
    path = later[0] / "assets.extra" / "tf_serving_warmup_requests"
    assert len(list(read_log(path))) == 1000


def test_an_unreadable_warm_up_file_is_named(tmp_path: Path):
    (tmp_path / "w").write_bytes(b"no records" * 9)
    with pytest.raises(UserError, match=r"warm-up file .*/w cannot be read"):
        list(read_log(tmp_path / "w", "warm-up file"))


def test_lists_of_defaults_fit_the_schema():
    lists = [input_pb2.ExampleListWithContext.FromString(x) for x in example_lists(SHOP)]
    assert [len(x.examples) for x in lists] == [1, 10, 60]
    assert list(lists[1].examples[9].features.feature["example_numeric"].float_list.value) == [0, 3]


def test_versions_count_up_and_are_never_overwritten(later: tuple[Path, int]):
    made, before = later
    out = made.parent
    assert made == out / "42"
    for version in (41, 42):
        with pytest.raises(UserError, match=f"version {version} exists"):
            export_model(scorer(), SHOP, out, version=version)
    assert sorted(p.name for p in out.iterdir()) == ["41", "42"]
    assert out.stat().st_ino == before


def test_a_version_below_one_is_rejected(tmp_path: Path):
    with pytest.raises(UserError, match=r"must be above 0 .* got 0"):
        export_model(scorer(), SHOP, tmp_path, version=0)


def test_a_run_in_place_of_the_folder_is_rejected(tmp_path: Path):
    (tmp_path / "schema.json").write_text("{}")
    with pytest.raises(UserError, match="is a run or a data set; give another folder, MODELS/NAME"):
        export_model(scorer(), SHOP, tmp_path)


@pytest.mark.parametrize(
    ("folder", "reason"), [("shop/1", "is a version of a model"), (".", "has models")]
)
def test_a_folder_beside_that_of_the_model_is_rejected(tmp_path: Path, folder: str, reason: str):
    for version in ("1", "retired/2"):
        (tmp_path / "shop" / version).mkdir(parents=True)
        (tmp_path / "shop" / version / "saved_model.pb").write_bytes(b"")
    with pytest.raises(UserError, match=f"{reason}; give another folder, MODELS/NAME"):
        free_version(tmp_path / folder, None)
    assert free_version(tmp_path / "shop", None) == 2


def test_a_file_in_place_of_the_folder_is_rejected(tmp_path: Path):
    (tmp_path / "shop").write_text("")
    with pytest.raises(UserError, match="is a file"):
        export_model(scorer(), SHOP, tmp_path / "shop")


def test_a_folder_that_cannot_be_made_is_rejected(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/shop/1: cannot be made \(Not a directory\)"):
        export_model(scorer(), SHOP, tmp_path / "file" / "shop", warmup=WARMUP)


@pytest.mark.parametrize("position", [0, 499])
def test_a_warm_up_list_of_garbage_is_rejected(tmp_path: Path, position: int):
    lists = [WARMUP[0]] * 500
    lists[position] = b"garbage"
    with pytest.raises(UserError, match="warm-up list does not fit"):
        export_model(scorer(), SHOP, tmp_path / "shop", warmup=lists)
    assert not (tmp_path / "shop").exists()


def test_a_model_whose_scores_are_not_finite_is_rejected(tmp_path: Path):
    inputs = inputs_of(SHOP)
    broken = tf.keras.Model(inputs, tf.math.log(-1.0 - inputs["example_numeric"][..., 0] ** 2))
    with pytest.raises(UserError, match="list 0: the model's scores are not finite"):
        export_model(broken, SHOP, tmp_path / "shop", warmup=WARMUP)


class TwoFaced(tf.keras.layers.Layer):
    """Adds 0.5 in graphs only, so that what is exported is not what the model answers."""

    def call(self, x):
        return x if tf.executing_eagerly() else x + 0.5


def test_an_export_with_other_scores_is_not_published(tmp_path: Path):
    inputs = inputs_of(SHOP)
    model = tf.keras.Model(inputs, TwoFaced()(inputs["example_numeric"])[..., 0])
    with pytest.raises(UserError, match=r"list 0: .* differ by 0\.5"):
        export_model(model, SHOP, tmp_path / "shop", warmup=WARMUP)
    assert list((tmp_path / "shop").iterdir()) == []


def test_mixed_precision_is_compared_by_its_own_rounding_unit(tmp_path: Path):
    """0.004 is below the 2^-7 of bfloat16, and far above what float32 is allowed."""
    inputs = inputs_of(SHOP)

    class Nearly(tf.keras.layers.Layer):
        def call(self, x):
            return x if tf.executing_eagerly() else x + 0.004

    half = tf.keras.layers.Activation("tanh", dtype="mixed_bfloat16")
    logits = tf.cast(half(inputs["example_numeric"][..., 0]), tf.float32)
    model = tf.keras.Model(inputs, Nearly()(logits))
    assert export_model(model, SHOP, tmp_path / "shop", warmup=WARMUP).is_dir()


def test_a_version_that_appears_meanwhile_is_not_overwritten(tmp_path: Path):
    out = tmp_path / "shop"

    class Overtaking(tf.keras.layers.Layer):
        """While it is traced for the export, another one publishes the same version."""

        def call(self, x):
            if not tf.executing_eagerly() and (out / ".partial-1-1").exists():
                (out / ".partial-1-1").rename(out / "1")
            return x

    inputs = inputs_of(SHOP)
    model = tf.keras.Model(inputs, Overtaking()(inputs["example_numeric"][..., 0]))
    (out / ".partial-1-1").mkdir(parents=True)
    (out / ".partial-1-1" / "saved_model.pb").write_text("the other's")
    with pytest.raises(UserError, match=r"shop/1: exists already"):
        export_model(model, SHOP, out, warmup=WARMUP)
    assert [p.name for p in out.iterdir()] == ["1"]
    assert (out / "1" / "saved_model.pb").read_text() == "the other's"


def test_a_table_from_a_vocabulary_file_travels_as_an_asset(tmp_path: Path):
    (tmp_path / "brands.txt").write_text("acme\nbolt\n")
    inputs = inputs_of(SHOP)
    table = tf.keras.layers.StringLookup(vocabulary=str(tmp_path / "brands.txt"))
    rows = table(inputs["brand"])[:, :, 0]
    model = tf.keras.Model(inputs, tf.cast(rows, tf.float32))
    path = export_model(model, SHOP, tmp_path / "shop")
    (tmp_path / "brands.txt").unlink()
    loaded = tf.saved_model.load(str(path))
    scores = loaded.signatures["serving_default"](inputs=tf.constant([elwc(shop_items(3))]))[
        "scores"
    ]
    np.testing.assert_array_equal(scores, [[1, 2, 0]])


def test_other_scores_of_a_single_task_are_rejected(tmp_path: Path):
    """The combined score is right, that of one task is not."""
    inputs = inputs_of(SHOP)
    score = towers(inputs, 1)[..., 0]
    outputs = {"scores": score, "scores_click": TwoFaced()(score)}
    with pytest.raises(UserError, match=r"list 0: serving_default scores_click: .* differ by 0\.5"):
        export_model(tf.keras.Model(inputs, outputs), SHOP, tmp_path / "shop", warmup=WARMUP)


def test_other_weights_of_experts_are_rejected(tmp_path: Path):
    model, explanation = mixture()
    outputs = dict(explanation.output)
    outputs["expert_weights"] = TwoFaced()(outputs["expert_weights"])
    wrong = tf.keras.Model(explanation.input, outputs)
    with pytest.raises(UserError, match=r"list 0: rank expert_weights: .* differ by 0\.5"):
        export_model(model, SHOP, tmp_path / "shop", explanation=wrong, warmup=WARMUP)


def test_details_have_what_was_verified(models: Path):
    details = json.loads((models / "plain" / "1" / "assets.extra" / "details.json").read_text())
    assert details["verified"]["lists"] == 3
    assert details["verified"]["largest_difference"] <= details["verified"]["allowed"] == 1e-5
