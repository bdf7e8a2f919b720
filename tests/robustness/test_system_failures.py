"""Full disks, deleted folders, missing permissions and odd names cost one line, or just work."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import apache_beam as beam
import pytest

from tests.robustness.test_data_identity import SCHEMA, write_log
from tests.tiny import small_config, write_data_folder
from tfr_moe.beam import BuildOptions, build
from tfr_moe.beam.runner import running
from tfr_moe.beam.sources.files import match
from tfr_moe.cli import main
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.errors import UserError
from tfr_moe.training.run_folder import prepared
from tfr_moe.utils.failures import file_errors, file_failure


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Lets writes fail as on a full disk, with another number of the error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    cached = sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # Python would keep what it could write of a compiled module
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        sys.dont_write_bytecode = cached


@pytest.fixture
def log(tmp_path) -> BuildOptions:
    folder = tmp_path / "logs [2024]"
    folder.mkdir()
    (folder / "schema.yaml").write_text(SCHEMA)
    write_log(folder / "a*b?[1].csv")
    return BuildOptions(
        "search-logs", str(folder / "a*b?[1].csv"), folder / "schema.yaml", tmp_path / "data [1]"
    )


def test_names_with_wildcards_stand_for_themselves(tmp_path):
    for name in ("in[1].csv", "in1.csv", "a*.csv", "other.csv"):
        (tmp_path / name).write_text("x")
    assert list(match(str(tmp_path / "in[1].csv"))) == [str(tmp_path / "in[1].csv")]
    assert list(match(str(tmp_path / "a*.csv"))) == [str(tmp_path / "a*.csv")]
    assert len(match(str(tmp_path / "*.csv"))) == 4
    folder = Path(shutil.copytree(tmp_path, tmp_path / "d[2]"))
    assert len(match(str(folder / "in*.csv"))) == 2
    with pytest.raises(UserError, match="no file matches"):
        match(str(folder / "none*.csv"))


def test_logs_and_data_sets_may_have_wildcards_in_their_names(log, tmp_path):
    build(log)
    folder = DataFolder(tmp_path / "data [1]")
    batches = ElwcDatasetBuilder(folder).build_train_dataset()
    lists = sum(int(labels.shape[0]) for _, labels in batches)
    assert lists == folder.num_lists("train")


def test_a_run_whose_name_tensorflow_cannot_read_is_rejected_first(tmp_path):
    folder = DataFolder(write_data_folder(tmp_path / "data", 2, 2, 2))
    entered = prepared(tmp_path / "a[1]", folder, small_config({"model": "dnn"}))
    with pytest.raises(UserError, match=r"run .*a\[1\]: the path contains"), entered:
        pass
    assert not (tmp_path / "a[1]").exists()


def test_a_run_that_ends_before_its_settings_are_written_starts_again(tmp_path, monkeypatch):
    folder = DataFolder(write_data_folder(tmp_path / "data", 2, 2, 2))
    config, run = small_config({"model": "dnn"}), tmp_path / "run"

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(config), "save", interrupt)
        with pytest.raises(KeyboardInterrupt), prepared(run, folder, config):
            pass
    assert not any(run.iterdir())
    with prepared(run, folder, config):
        assert (run / "config.yaml").is_file() and (run / "schema.json").is_file()
    assert not list(tmp_path.glob(".*"))


def test_a_full_disk_ends_a_build_in_one_line_and_leaves_nothing(log, tmp_path, caplog):
    with files_of_at_most(100), pytest.raises(UserError, match="File too large") as raised:
        build(log)
    assert "\n" not in str(raised.value) and str(tmp_path) in str(raised.value)
    assert not [path for path in tmp_path.iterdir() if "data" in path.name]
    assert not [record for record in caplog.records if record.exc_info]


def test_a_full_disk_ends_a_command_in_one_line(tmp_path, capsys):
    with files_of_at_most(100), pytest.raises(SystemExit) as ended:
        main(["synth", "--out", str(tmp_path / "logs"), "--set", "sessions=20"])
    printed = capsys.readouterr()
    assert ended.value.code == 2
    assert printed.err == f"error: {tmp_path / 'logs'}: File too large\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device", "shards/a"),
        RuntimeError("OSError: [Errno 28] No space left on device: 'shards/a'"),
    ],
)
def test_an_error_of_the_disk_in_a_step_is_one_line(error):
    def fail(_: int) -> None:
        raise error

    with pytest.raises(UserError) as raised, running(()) as pipeline:
        _ = pipeline | beam.Create([1]) | beam.Map(fail)
    assert str(raised.value) == "shards/a: No space left on device"


def test_defects_keep_their_traceback():
    def fail(_: int) -> None:
        raise KeyError("price")

    with pytest.raises(Exception, match="price") as raised, running(()) as pipeline:
        _ = pipeline | beam.Create([1]) | beam.Map(fail)
    assert not isinstance(raised.value, UserError)
    with pytest.raises(KeyError), file_errors("run"):
        raise KeyError("price")
    assert file_failure(ValueError("no")) is None
    assert file_failure(BrokenPipeError(errno.EPIPE, "Broken pipe")) is None


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES), "a"), "a: Permission denied"),
        (OSError("1664 requested and 750 written"), "1664 requested and 750 written"),
        (MemoryError("Unable to allocate 8 GiB"), "out of memory (Unable to allocate 8 GiB)"),
        (RuntimeError("MemoryError [while]"), "out of memory (MemoryError [while])"),
        (RuntimeError("can't start new thread"), "out of memory (can't start new thread)"),
    ],
)
def test_errors_of_the_system_have_one_line(error, line):
    assert file_failure(error) == line
