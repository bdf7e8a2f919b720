"""What a folder's name may already be, and what is left of one whose making failed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tfr_moe.errors import UserError
from tfr_moe.folders import check_free, complete_folder, make_folder


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_text("mine")
    return path


@pytest.fixture
def full(tmp_path: Path) -> Path:
    folder = tmp_path / "full"
    folder.mkdir()
    (folder / "old.txt").write_text("old")
    return folder


def test_overwriting_a_folder_replaces_all_of_it(tmp_path, full):
    with pytest.raises(ZeroDivisionError), complete_folder(full, overwrite=True):
        raise ZeroDivisionError
    assert names(full) == ["old.txt"]
    with complete_folder(full, overwrite=True) as folder:
        (folder / "new.txt").write_text("new")
    assert names(full) == ["new.txt"]
    assert names(tmp_path) == ["full"]


def test_a_name_is_free_where_nothing_or_an_empty_folder_is(tmp_path, full):
    (tmp_path / "empty").mkdir()
    for name in ("none", "empty"):
        check_free(tmp_path / name)
    with pytest.raises(UserError, match="full: exists already; give another folder"):
        check_free(full)
    check_free(full, overwrite=True)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_is_never_replaced_by_a_folder(file, overwrite):
    with pytest.raises(UserError, match="file: is a file, a folder is to be written here"):
        check_free(file, overwrite)


def test_a_folder_is_made_with_those_above_it_and_kept_with_what_it_holds(tmp_path, full):
    make_folder(tmp_path / "a" / "b", "run b")
    make_folder(full, "run full")
    assert names(tmp_path / "a") == ["b"]
    assert names(full) == ["old.txt"]


@pytest.mark.parametrize(
    ("below", "reason"),
    [("", "File exists"), ("run", "Not a directory"), ("a/b", "Not a directory")],
)
def test_a_folder_that_cannot_be_made_is_named(file, below, reason):
    with pytest.raises(UserError) as caught:
        make_folder(file / below, "run mine")
    assert str(caught.value) == f"run mine: cannot be made ({reason})"


def test_a_new_folder_is_not_made_of_one_that_is_there(tmp_path, full):
    with pytest.raises(UserError) as caught:
        make_folder(full, "full", new=True)
    assert str(caught.value) == "full: cannot be made (File exists)"
    assert names(full) == ["old.txt"]


def test_what_could_not_be_cleared_away_never_gets_into_a_complete_folder(tmp_path, full):
    """A link, which is not removed as a folder is, stands where the hidden folder is to be."""
    (tmp_path / f".data.partial-{os.getpid()}").symlink_to(full)
    refusal = pytest.raises(UserError, match=r"data: cannot be made \(File exists\)")
    with refusal, complete_folder(tmp_path / "data"):
        raise AssertionError("nothing is written")
    assert names(full) == ["old.txt"]


def test_a_complete_folder_below_a_file_is_refused_by_its_own_name(file):
    refusal = pytest.raises(UserError, match=r"file/x: cannot be made \(Not a directory\)")
    with refusal, complete_folder(file / "x"):
        raise AssertionError("nothing is written")
