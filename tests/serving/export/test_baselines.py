"""Trees and the linear ranker are exported and replayed as neural models are."""

import numpy as np
import pytest
from rich.console import Console

from tests import tiny
from tfr_moe._compat import tf
from tfr_moe.baselines import open_run, train_baseline
from tfr_moe.config import make_config
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.schema import MASK
from tfr_moe.serving.export import export_run, measure_skew
from tfr_moe.serving.versions import WARMUP_FILE

QUIET = Console(quiet=True)
SHORT = {
    "lambdamart": {"num_iterations": 20, "min_data_in_leaf": 5, "num_leaves": 7},
    "xgboost": {"num_boost_round": 20, "max_depth": 3},
    "svm_rank": {"max_iter": 2},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("graded") / "set"
    return tiny.write_data_folder(path, 100, 40, 40, lists=tiny.graded_lists)


def trained(model, data, out):
    settings = {"model": model, "library_parameters": SHORT[model], "list_relative": True}
    train_baseline(data, out, make_config(settings), QUIET)
    return out


@pytest.fixture(scope="module", params=["lambdamart", "xgboost", "svm_rank"])
def run(request, data, tmp_path_factory):
    return trained(request.param, data, tmp_path_factory.mktemp("runs") / request.param)


@pytest.fixture(scope="module")
def version(run, data, tmp_path_factory):
    return export_run(run, tmp_path_factory.mktemp("models") / "shop", data, console=QUIET)


def test_the_export_scores_and_ranks_as_the_library(data, run, version):
    loaded, builder = open_run(run), ElwcDatasetBuilder(DataFolder(data), 8)
    signatures = tf.saved_model.load(str(version)).signatures
    seen = set()
    records = builder.serialized_lists("test").batch(8)
    batches = zip(builder.build_evaluation_dataset("test"), records, strict=True)
    for (features, *_), record in batches:
        mask = features[MASK].numpy()
        expected = np.where(mask, loaded.score(features), tf.float32.min)
        actual = signatures["serving_default"](inputs=record)["scores"]
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
        ranked = signatures["rank"](inputs=record)["scores"]
        np.testing.assert_allclose(ranked, -np.sort(-expected), rtol=1e-5, atol=1e-5)
        seen |= set(expected[mask])
    assert len(seen) > 50


def test_its_warmup_requests_replayed_differ_nowhere(data, run, version):
    rows = measure_skew(version, version / "assets.extra" / WARMUP_FILE, run)
    assert rows[0].name == "scores" and rows[0].compared == 32  # 16 lists for two signatures
    assert [row.name for row in rows if row.different] == []
