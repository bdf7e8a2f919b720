"""Files that are missing, empty, truncated or changed cost one line that names them."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.records import encode_list
from tests.tiny import SCHEMA, small_config, write_data_folder
from tfr_moe._compat import tf
from tfr_moe.baselines import open_run, train_baseline
from tfr_moe.baselines.run import MODULES
from tfr_moe.cli import main
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.data.builder import check_finite
from tfr_moe.errors import UserError
from tfr_moe.schema import MASK
from tfr_moe.training import train
from tfr_moe.training.callbacks import read_history
from tfr_moe.utils.failures import file_errors, load_saved_model

Spoil = Callable[[Path], Any]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def holding(text: str) -> Spoil:
    return lambda path: path.write_text(text)


def one_line(raised: Any) -> str:
    line = str(raised.value)
    assert "\n" not in line and "Traceback" not in line
    return line


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """A data set whose manifest has no digests, as those of version 0.1.0."""
    return write_data_folder(tmp_path_factory.mktemp("broken") / "data", 20, 10, 10)


@pytest.fixture(scope="module")
def run(data, tmp_path_factory) -> Path:
    """A run without a manifest."""
    run = tmp_path_factory.mktemp("runs") / "run"
    train(data, run, small_config({"model": "dnn", "num_epochs": 1}))
    (run / "manifest.json").unlink()
    return run


@pytest.fixture
def copy(tmp_path) -> Callable[[Path], Path]:
    return lambda folder: Path(shutil.copytree(folder, tmp_path / folder.name))


@pytest.mark.parametrize(
    "spoil",
    [
        flip,
        cut,
        empty,
        lambda path: path.write_bytes(gzip.decompress(path.read_bytes())),
        holding("x"),
    ],
    ids=["flipped", "truncated", "empty", "no-gzip", "text"],
)
def test_a_broken_record_file_is_named_before_anything_is_read(data, copy, spoil):
    data = copy(data)
    name = "train-00001-of-00002.tfrecord.gz"
    spoil(data / name)
    folder = DataFolder(data)
    assert len(folder.files("validation")) == 2
    with pytest.raises(UserError, match=name) as raised:
        folder.files("train")
    one_line(raised)


def test_a_changed_record_file_of_a_manifest_is_named_before_anything_is_read(data, copy):
    data = copy(data)
    from tfr_moe.schema import write_manifest

    write_manifest(data, {})
    flip(data / "train-00001-of-00002.tfrecord.gz")
    folder = DataFolder(data)
    folder.files("validation")
    with pytest.raises(UserError, match=r"train-00001-of-00002\.tfrecord\.gz has been changed"):
        folder.files("train")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", "not valid JSON"),
        ("[]", "must be a mapping"),
        ('{"splits": []}', "splits: must be a mapping"),
        ('{"splits": {"train": {"lists": "many"}}}', "splits: train: lists"),
        ('{"files": 3}', "files: must be a mapping"),
        ('{"files": {"a": {"bytes": "x"}}}', "files: a: bytes"),
    ],
)
def test_a_broken_manifest_is_named(data, copy, content, message):
    data = copy(data)
    (data / "manifest.json").write_text(content)
    with pytest.raises(UserError, match=rf"manifest\.json: .*{message}") as raised:
        DataFolder(data)
    one_line(raised)


@pytest.mark.parametrize("content", ["{", "[]", '{"example": {"price": {"mean": NaN}}}'])
def test_broken_statistics_are_named(data, copy, content):
    data = copy(data)
    (data / "statistics.json").write_text(content)
    with pytest.raises(UserError, match=r"statistics\.json: ") as raised:
        DataFolder(data).tables()
    one_line(raised)


WEIGHTS = "checkpoints/epoch-0001/weights"


@pytest.mark.parametrize(
    ("name", "spoil", "message"),
    [
        *(
            (f"{WEIGHTS}.{end}", spoil, rf"checkpoint {WEIGHTS} cannot be read \(.+\)")
            for end in ("index", "data-00000-of-00001")
            for spoil in (cut, empty, Path.unlink)
        ),
        (f"{WEIGHTS}.index", flip, f"checkpoint {WEIGHTS} cannot be read"),
        ("metrics.json", cut, r"metrics\.json: cannot be read \(not valid JSON"),
        ("metrics.json", holding("{}"), r"metrics\.json: best_epoch: Field required"),
        ("metrics.json", holding("[]"), r"metrics\.json: must be a mapping"),
        ("metrics.json", holding('{"best": {}, "best_epoch": "x"}'), r"metrics\.json: best_epoch"),
        ("metrics.json", holding('{"best": {}, "best_epoch": 9}'), "epoch-0009/weights cannot be"),
        ("config.yaml", empty, "checkpoint .* cannot be read"),
        ("config.yaml", holding("[1]"), r"config\.yaml: must be a mapping"),
        ("vocabulary/brand.txt", empty, "checkpoint .* cannot be read"),
        ("vocabulary/brand.txt", Path.unlink, "vocabulary of feature 'brand' is missing"),
        ("statistics.json", empty, r"statistics\.json: cannot be read"),
        ("schema.json", cut, r"schema\.json: not valid YAML or JSON"),
        ("manifest.json", holding("["), r"manifest\.json: cannot be read"),
    ],
)
def test_a_broken_file_of_a_run_is_named(run, copy, name, spoil, message):
    run = copy(run)
    spoil(run / name)
    with pytest.raises(UserError, match=message) as raised:
        open_run(run)
    one_line(raised)


@pytest.mark.parametrize(
    "content", ["{", "{}", "[1]", '[{"epoch": "x"}]', '[{"epoch": 1, "a": []}]']
)
def test_a_broken_history_is_named(tmp_path, content):
    (tmp_path / "history.json").write_text(content)
    with pytest.raises(UserError, match=r"history\.json: ") as raised:
        read_history(tmp_path)
    one_line(raised)


@pytest.mark.parametrize("model", MODULES)
def test_a_broken_baseline_is_named(data, tmp_path, model):
    run, name = tmp_path / "run", MODULES[model].FILE
    few = {} if model == "svm_rank" else {"library_parameters": {"num_boost_round": 2}}
    train_baseline(data, run, small_config({"model": model}, **few))
    (run / "manifest.json").unlink()
    open_run(run)
    for spoil in (cut, empty, Path.unlink):
        spoil(run / name)
        with pytest.raises(UserError, match=f"{re.escape(name)} cannot be read") as raised:
            open_run(run)
        one_line(raised)


@pytest.fixture(scope="module")
def saved_model(tmp_path_factory) -> Path:
    """A SavedModel with a variable and a vocabulary, as those of exports."""
    folder = tmp_path_factory.mktemp("saved")
    (folder / "words.txt").write_text("a\nb\nc\n")
    module = tf.Module()
    initializer = tf.lookup.TextFileInitializer(
        str(folder / "words.txt"),
        tf.string,
        tf.lookup.TextFileIndex.WHOLE_LINE,
        tf.int64,
        tf.lookup.TextFileIndex.LINE_NUMBER,
    )
    module.table = tf.lookup.StaticHashTable(initializer, -1)
    module.weights = tf.Variable(tf.ones([50]))
    module.score = tf.function(
        lambda words: tf.gather(module.weights, module.table.lookup(words)),
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
    tf.saved_model.save(module, str(folder / "model"))
    return folder / "model"


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        # A flipped byte of the graph may be one of a name: the digests of an export find it.
        *(("saved_model.pb", spoil) for spoil in (cut, empty, Path.unlink)),
        *(("variables/variables.index", spoil) for spoil in (flip, cut, empty, Path.unlink)),
        *(
            ("variables/variables.data-00000-of-00001", spoil)
            for spoil in (cut, empty, Path.unlink)
        ),
        *(("assets/words.txt", spoil) for spoil in (empty, Path.unlink)),
    ],
)
def test_a_broken_saved_model_is_named(saved_model, copy, name, spoil):
    folder = copy(saved_model)
    load_saved_model(folder)
    spoil(folder / name)
    with pytest.raises(UserError, match=f"model {folder}: the SavedModel cannot be") as raised:
        load_saved_model(folder)
    one_line(raised)


def encoded(**changes: float) -> bytes:
    item = {"brand": "b", "price": 1.0, "sales": 2.0, "purchase": 1.0, "position": 1.0}
    context = {"top": "a", "sub": "x", "age": 30.0, "clicked": ["item1"]}
    changed = {name: value for name, value in changes.items() if name in item}
    context |= {name: value for name, value in changes.items() if name in context}
    record = encode_list(SCHEMA, "q", context, [item, item | dict.fromkeys(changed, 0.5)])
    marks = {np.float32(0.5).tobytes(): value for value in changed.values()}
    for mark, value in marks.items():
        record = record.replace(mark, np.float32(value).tobytes())
    return record


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("price", float("nan")),
        ("purchase", float("nan")),
        ("purchase", float("inf")),
        ("sales", -float("inf")),  # a NaN there is a missing value
    ],
)
def test_a_number_of_a_record_that_is_not_finite_is_named(data, copy, column, value):
    record = encoded(**{column: value})
    data = copy(data)
    options = tf.io.TFRecordOptions(compression_type="GZIP")
    with tf.io.TFRecordWriter(str(data / "train-00001-of-00002.tfrecord.gz"), options) as writer:
        writer.write(record)
    batches = ElwcDatasetBuilder(DataFolder(data)).build_valid_dataset()
    assert all(batches.map(lambda features, labels: True).as_numpy_iterator())
    with pytest.raises(UserError) as raised, file_errors("run"):
        list(ElwcDatasetBuilder(DataFolder(data)).build_train_dataset())
    assert one_line(raised) == (
        f"invalid input: data {data}: split train: column {column} holds a NaN or infinite value"
    )


def test_finite_numbers_and_missing_values_pass_unchanged():
    parsed = {
        "context_numeric": tf.constant([[1.0]]),
        "example_numeric": tf.constant([[[3.4e38, -3.4e38], [1.0, float("nan")]]]),
        "purchase": tf.constant([[[-1.0], [1.0]]]),
        "position": tf.constant([[[0.0], [1.0]]]),
        MASK: tf.constant([[True, True]]),
    }
    assert check_finite(parsed, SCHEMA, "data") is parsed


def test_the_command_line_names_the_broken_file(data, run, copy, capsys):
    run = copy(run)
    cut(run / f"{WEIGHTS}.index")
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", "--data", str(data), "--run", str(run)])
    printed = capsys.readouterr()
    assert ended.value.code == 2
    assert printed.err.startswith(f"error: run {run}: the checkpoint {WEIGHTS} cannot be read")
    assert printed.err.count("\n") == 1


def test_a_vocabulary_that_was_replaced_is_read_again(data, copy):
    """TensorFlow shares lookup tables by the name of their file."""
    from tfr_moe.layers import FeatureEncoder

    folder = copy(data)

    def looked_up() -> list[int]:
        tables = DataFolder(folder).tables()
        encoder = FeatureEncoder(SCHEMA, tables.statistics, tables.vocabularies)
        return encoder.lookups["brand"](tf.constant(["brand0", "brand4", "other"])).numpy().tolist()

    path = folder / "vocabulary" / "brand.txt"
    words = path.read_text().split()
    assert looked_up() == [1, 5, 0]
    path.write_text("\n".join(reversed(words)) + "\n")
    assert looked_up() == [5, 1, 0]
    path.write_text("\n".join(words) + "\n")
    assert looked_up() == [1, 5, 0]
    assert json.loads((folder / "statistics.json").read_text())
