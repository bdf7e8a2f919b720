"""Data sets and runs are known by their content: whatever is changed afterwards is noticed."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import pytest

from tests.tiny import small_config
from tfr_moe.beam import BuildOptions, build
from tfr_moe.cli import main
from tfr_moe.data import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.evaluation.evaluate import evaluate_run
from tfr_moe.serving.export import export_run
from tfr_moe.training import train

SCHEMA = """
list_id: query
labels: [click]
features:
- {name: price, scope: example, kind: numeric}
- {name: item, scope: example, kind: categorical, embedding_dim: 2}
"""


def write_log(path: Path, lists: int = 40, shift: int = 0) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["query", "item", "price", "click"])
        for n in range(lists):
            for i in range(4):
                writer.writerow([f"q{n}", f"i{(n + i) % 7}", n + i, int((i + shift) % 4 == 0)])


def make(folder: Path, shift: int = 0, **options) -> Path:
    folder.mkdir(exist_ok=True)
    write_log(folder / "log.csv", shift=shift)
    (folder / "schema.yaml").write_text(SCHEMA)
    out = folder / "data"
    source = ("search-logs", str(folder / "log.csv"), folder / "schema.yaml", out)
    build(BuildOptions(*source, num_shards=2, overwrite=True, **options))
    return out


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    return make(tmp_path_factory.mktemp("original"))


@pytest.fixture
def data(original, tmp_path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "data"))


@pytest.fixture(scope="module")
def trained(original, tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("trained") / "run"
    train(original, run, small_config({"model": "dnn", "num_epochs": 1}))
    return run


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_the_same_log_has_the_same_fingerprint_wherever_it_is_built(original, tmp_path):
    assert DataFolder(make(tmp_path / "again")).fingerprint == DataFolder(original).fingerprint
    other = DataFolder(make(tmp_path / "other", shift=1))
    assert other.fingerprint != DataFolder(original).fingerprint


def test_check_passes_over_an_untouched_data_set(data, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["check", str(data)])
    assert ended.value.code == 0
    assert f"fingerprint {DataFolder(data).fingerprint}" in capsys.readouterr().out


def test_check_names_every_file_with_one_flipped_byte(data, capsys):
    names = json.loads((data / "manifest.json").read_text())["files"]
    assert len(names) == 7  # schema, statistics, a vocabulary, two training shards and two more
    for name in names:
        content = (data / name).read_bytes()
        flip(data / name)
        with pytest.raises(SystemExit) as ended:
            main(["check", str(data)])
        message = capsys.readouterr().err
        assert ended.value.code == 2
        assert f"{name} has been changed" in message
        assert message.count("\n") == 1
        (data / name).write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (Path.unlink, "train-00001-of-00002.tfrecord.gz is missing"),
        (cut, "train-00001-of-00002.tfrecord.gz has"),
        (lambda path: path.write_bytes(b""), "train-00001-of-00002.tfrecord.gz has 0 bytes"),
        (
            lambda path: shutil.copy(path, path.with_name("train-00002-of-00003.tfrecord.gz")),
            "train-00002-of-00003.tfrecord.gz is not in manifest.json",
        ),
    ],
    ids=["missing", "truncated", "empty", "extra"],
)
def test_shards_that_are_not_those_of_the_build_are_noticed_at_open(data, spoil, message):
    spoil(data / "train-00001-of-00002.tfrecord.gz")
    with pytest.raises(UserError, match=message):
        DataFolder(data)


@pytest.mark.parametrize("name", ["statistics.json", "vocabulary/item.txt", "schema.json"])
def test_a_changed_description_is_noticed_at_open(data, name):
    flip(data / name)
    with pytest.raises(UserError, match=f"{name} has been changed"):
        DataFolder(data)


@pytest.mark.parametrize("name", ["statistics.json", "vocabulary/item.txt"])
def test_a_changed_run_is_not_evaluated(original, trained, tmp_path, name):
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    evaluate_run(DataFolder(original), run, "test", ["ndcg"])
    flip(run / name)
    with pytest.raises(UserError, match=f"{name} has been changed; make the run again"):
        evaluate_run(DataFolder(original), run, "test", ["ndcg"])


def test_a_run_with_another_setting_is_not_evaluated(original, trained, tmp_path):
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    config = (run / "config.yaml").read_text()
    assert "activation: relu" in config
    (run / "config.yaml").write_text(config.replace("activation: relu", "activation: tanh"))
    with pytest.raises(UserError, match=r"config\.yaml has been changed; make the run again"):
        evaluate_run(DataFolder(original), run, "test", ["ndcg"])


def test_check_names_every_file_of_a_run_and_of_an_export_with_one_flipped_byte(
    original, trained, tmp_path, capsys
):
    export_run(trained, tmp_path / "shop", original, version=1)
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    manifests = {
        run: run / "manifest.json",
        tmp_path / "shop" / "1": tmp_path / "shop" / "1" / "assets.extra" / "manifest.json",
    }
    for folder, manifest in manifests.items():
        with pytest.raises(SystemExit) as ended:
            main(["check", str(folder)])
        assert ended.value.code == 0
        names = json.loads(manifest.read_text())["files"]
        assert any("variables.data" in name or "weights.data" in name for name in names)
        for name in names:
            content = (folder / name).read_bytes()
            if not content:
                continue
            flip(folder / name)
            with pytest.raises(SystemExit) as ended:
                main(["check", str(folder)])
            assert ended.value.code == 2
            assert f"{name} has been changed" in capsys.readouterr().err
            (folder / name).unlink()
            with pytest.raises(SystemExit) as ended:
                main(["check", str(folder)])
            assert ended.value.code == 2
            assert f"{name} is missing" in capsys.readouterr().err
            (folder / name).write_bytes(content)
        manifest.write_text(manifest.read_text().replace('"bytes"', '"bites"', 1))
        with pytest.raises(SystemExit) as ended:
            main(["check", str(folder)])
        assert ended.value.code == 2
        assert re.fullmatch(r"error: .*manifest\.json: files: .*\n", capsys.readouterr().err)
    assert "metrics.json" in json.loads((trained / "manifest.json").read_text())["files"]


def test_check_says_where_there_is_nothing_to_compare_with(tmp_path, capsys):
    version = tmp_path / "models" / "shop" / "1"
    version.mkdir(parents=True)
    (version / "saved_model.pb").write_bytes(b"")
    for folder, words in (
        (version, "has no digests to compare with; make the model again"),
        (version.parent, "not a data set, run or exported version (MODELS/NAME/VERSION)"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["check", str(folder)])
        assert ended.value.code == 2
        message = capsys.readouterr().err
        assert words in message and message.count("\n") == 1


def test_a_run_is_not_resumed_on_data_of_other_content(original, trained, tmp_path):
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    config = small_config({"model": "dnn", "num_epochs": 1})
    (run / "metrics.json").unlink()  # as if it had been killed before its end
    other = make(tmp_path / "other", shift=1)
    with pytest.raises(UserError, match="was started on other data"):
        train(other, run, config)
    moved = Path(shutil.copytree(original, tmp_path / "moved"))
    train(moved, run, config)  # the same content under another name


def test_overwriting_spares_folders_that_hold_no_data_set(tmp_path):
    mine = tmp_path / "mine" / "data"
    mine.mkdir(parents=True)
    (mine / "thesis.txt").write_text("all I have")
    with pytest.raises(UserError, match=r"is not overwritten, because it has no manifest\.json"):
        make(tmp_path / "mine")
    assert (mine / "thesis.txt").read_text() == "all I have"


def test_overwriting_spares_a_data_set_that_holds_the_input(tmp_path):
    out = make(tmp_path)
    write_log(out / "log.csv")
    source = ("search-logs", str(out / "log.csv"), tmp_path / "schema.yaml", out)
    with pytest.raises(UserError, match=r"contains the input .*log\.csv"):
        build(BuildOptions(*source, overwrite=True))
    assert (out / "log.csv").is_file()


def test_overwriting_spares_the_data_set_whose_tables_are_taken(tmp_path):
    out = make(tmp_path)
    source = ("search-logs", str(tmp_path / "log.csv"), None, out)
    with pytest.raises(UserError, match=r"contains the input .*data"):
        build(BuildOptions(*source, like=out, overwrite=True))
