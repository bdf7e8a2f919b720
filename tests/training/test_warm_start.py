"""A run that starts from another has its scores: weights follow vocabularies, features, domains."""

import json
import shutil

import numpy as np
import pytest
from rich.console import Console

from tests.tiny import SCHEMA, SMALL, TASKS, small_config, write_data_folder
from tfr_moe.cli import main
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema
from tfr_moe.scorers.base import FEATURES
from tfr_moe.training import LoadedRun, WarmStart, load_run, make_scorer, train, warm_start
from tfr_moe.training.run_folder import check_same_data
from tfr_moe.training.warm_start import _rows

QUIET = Console(quiet=True)
LISTS = {"train": 40, "validation": 20, "test": 20}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data_folder(tmp_path_factory.mktemp("data") / "set", **LISTS)


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "monday"
    settings = {"num_epochs": 2, "metrics": ["session_auc"]}
    train(data, path, small_config({**SMALL, **settings}), QUIET)
    return path


@pytest.fixture(scope="module")
def loaded(run):
    return load_run(run)


def changed(data, target, words=None, statistics=None, schema=None):
    """A copy of a data set with other vocabularies, statistics or another schema."""
    shutil.copytree(data, target)
    for name, lines in (words or {}).items():
        (target / "vocabulary" / f"{name}.txt").write_text("".join(f"{w}\n" for w in lines))
    if statistics is not None:
        (target / "statistics.json").write_text(json.dumps(statistics))
    if schema is not None:
        FeatureSchema.model_validate(schema).save(target / "schema.json")
    return target


def started(source, data, config):
    """The model of a run that has made no step yet, and its data set."""
    folder = source.described(DataFolder(data))
    model = make_scorer(folder, config).build_model(name=config.model)
    source.apply(model, folder)
    return model


def scores(model, data):
    dataset = ElwcDatasetBuilder(DataFolder(data)).build_evaluation_dataset("test")
    return [model(features).numpy() for features, _, _ in dataset]


def same(a, b, rtol=0.0):
    for left, right in zip(a, b, strict=True):
        np.testing.assert_allclose(left, right, rtol=rtol, atol=0)


WORDS = {
    "top": ["c", "b", "a"],
    "sub": ["c > q", "b > z", "a > w", "a > y", "b > x", "a > x"],
    "brand": ["brand9", "brand4", "brand3", "brand2", "brand1", "brand0"],
}


def test_no_step_on_the_same_data_has_the_same_scores(run, loaded, data):
    model = started(WarmStart(run), data, loaded.config)
    same(scores(model, data), scores(loaded.model, data))


def test_other_order_of_the_vocabularies_and_other_statistics_keep_the_scores(
    run, loaded, data, tmp_path
):
    moved = json.loads((data / "statistics.json").read_text())
    moved["example"]["price"] = {"count": 9, "mean": 5.0, "std": 7.0}
    other = changed(data, tmp_path / "other", WORDS, moved)
    model = started(WarmStart(run), other, loaded.config)
    same(scores(model, data), scores(loaded.model, data))


def test_new_entries_start_as_unknown_ones_and_sub_categories_as_their_siblings(
    run, loaded, data, tmp_path
):
    other = changed(data, tmp_path / "other", WORDS)
    old = loaded.model.get_layer(FEATURES)
    new = started(WarmStart(run), other, loaded.config).get_layer(FEATURES)

    def row(encoder, name, word):
        table = encoder.embeddings[name].embeddings.numpy()
        return table[encoder.lookups[name].get_vocabulary().index(word)]

    for name, word in (("brand", "brand9"), ("top", "c"), ("sub", "c > q")):
        np.testing.assert_array_equal(row(new, name, word), row(old, name, "\n"))
    siblings = (row(old, "sub", "a > x") + row(old, "sub", "a > y")) / 2
    np.testing.assert_allclose(row(new, "sub", "a > w"), siblings, atol=1e-7)
    np.testing.assert_array_equal(row(new, "brand", "brand1"), row(old, "brand", "brand1"))


def with_features(schema):
    """The schema with a feature more of each kind and scope, in front of and between the others."""
    before = schema.as_dict()
    numeric = {"scope": "example", "kind": "numeric"}
    more = [
        {"name": "stock", **numeric},
        {"name": "color", "scope": "example", "kind": "categorical", "hash_buckets": 5},
        {"name": "device", "scope": "context", "kind": "categorical", "hash_buckets": 3},
    ]
    return {**before, "packed": False, "features": [*more, *before["features"]]}


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("adv_hsc_moe", {}),
        ("adv_hsc_moe", {"list_relative": True, "category_head": True}),
        ("star", {}),
        ("ple", {}),
    ],
)
def test_a_new_feature_and_new_domains_keep_the_scores(model, settings, tmp_path, monkeypatch):
    schema = TASKS.model_copy(update={"packed": False})
    data = write_data_folder(tmp_path / "data", **LISTS, schema=schema)
    statistics = json.loads((data / "statistics.json").read_text())
    statistics["example"]["stock"] = {"count": 9, "mean": 1.0, "std": 2.0}
    # The experts of all domains share a gate in `ple`: a new one takes weight from the others.
    words = WORDS if model != "ple" else {**WORDS, "top": ["b", "a"]}
    other = changed(data, tmp_path / "other", words, statistics, with_features(schema))
    config = small_config({**SMALL, **settings, "seed": 3}, model=model)
    folder = DataFolder(data)
    before = make_scorer(folder, config).build_model()
    rng = np.random.default_rng(0)
    for variable in before.variables:
        variable.assign(np.abs(rng.normal(0.1, 0.3, variable.shape)))
    folder.copy_description(tmp_path / "run")
    monkeypatch.setattr(warm_start, "load_run", lambda p: LoadedRun(p, config, schema, {}, before))
    after = started(WarmStart(tmp_path / "run"), other, config)
    dataset = ElwcDatasetBuilder(folder).build_evaluation_dataset("test")
    features = next(iter(dataset))[0]
    shape = features["price"].shape
    more = {
        "stock": rng.normal(size=shape),
        "color": np.full(shape, "red"),
        "device": np.full([shape[0], 1], "phone"),
    }
    same([before(features)], [after({**features, **more})], rtol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": SCHEMA.as_dict()["features"][:-1]}, "has no feature 'sales', which run"),
        ({"hierarchy": {"child": "top", "parent": "sub"}}, "hierarchy differs from that of run"),
        ({"features": SCHEMA.as_dict()["features"][::-1]}, "features are in another order"),
        (
            {
                "features": [
                    {k: v for k, v in f.items() if k != "transform"}
                    for f in SCHEMA.as_dict()["features"]
                ]
            },
            "feature 'price' has transform='none', in run",
        ),
    ],
)
def test_what_cannot_be_mapped_is_rejected_by_name(changes, message, run, loaded, data, tmp_path):
    other = changed(data, tmp_path / "other", schema={**SCHEMA.as_dict(), **changes})
    with pytest.raises(UserError, match=message):
        started(WarmStart(run), other, loaded.config)


def test_a_run_of_other_settings_is_rejected_by_the_weight(run, data, tmp_path):
    other = small_config({**SMALL, "model": "moe", "num_epochs": 2})
    with pytest.raises(UserError, match="constraint_gate/kernel is a weight of this run only"):
        train(data, tmp_path / "run", other, QUIET, start=run)
    assert not (tmp_path / "run").exists()


def test_the_command_starts_from_the_run_with_its_settings(run, loaded, data, tmp_path, capsys):
    out = tmp_path / "tuesday"
    arguments = ["train", "--from", str(run), "--data", str(data), "--out", str(out)]
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--set", "num_epochs=1", "--set", "learning_rate=1e-9"])
    assert ended.value.code == 0
    after = load_run(out)
    changes = {"num_epochs": 1, "learning_rate": 1e-9}
    assert after.config == loaded.config.replace(**changes)
    assert json.loads((out / "manifest.json").read_text())["start"]["path"] == str(run)
    for one, other in zip(scores(after.model, data), scores(loaded.model, data), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    # A killed run is resumed from the same start only.
    check_same_data(out, DataFolder(data), run)
    with pytest.raises(UserError, match=r"was started from .*monday, not from random weights"):
        check_same_data(out, DataFolder(data))


def test_siblings_are_found_where_categories_have_the_separator_in_their_names():
    old = ["", "Apparel > Shoes > Boots", "Apparel > Hats > Caps"]
    new = [*old, "Apparel > Shoes > Sandals"]
    rows = np.array([[0.0], [1.0], [100.0]])
    actual = _rows(rows, old, new, {"Apparel > Shoes", "Apparel > Hats"})
    assert actual.tolist() == [[0.0], [1.0], [100.0], [1.0]]
    plain = _rows(rows, ["", "a > x", "b > x"], ["", "b > y"], {"a", "b"})
    assert plain.tolist() == [[0.0], [100.0]]
