"""What a folder's name may already be, and what is left of one whose making failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfr_moe.errors import UserError
from tfr_moe.utils.io import (
    atomic_directory,
    check_free,
    check_free_file,
    check_inputs_outside,
    make_folder,
    write_text,
)


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
    with pytest.raises(ZeroDivisionError), atomic_directory(full, overwrite="old.txt"):
        raise ZeroDivisionError
    assert names(full) == ["old.txt"]
    with atomic_directory(full, overwrite="old.txt") as folder:
        (folder / "new.txt").write_text("new")
    assert names(full) == ["new.txt"]
    assert names(tmp_path) == ["full"]


def test_a_folder_that_appears_meanwhile_is_not_overwritten(tmp_path):
    with (
        pytest.raises(UserError, match="data: exists already"),
        atomic_directory(tmp_path / "data") as folder,
    ):
        (folder / "ours.txt").write_text("ours")
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "theirs.txt").write_text("theirs")
    assert names(tmp_path / "data") == ["theirs.txt"]
    assert names(tmp_path) == ["data"]


def test_a_name_is_free_where_nothing_or_an_empty_folder_is(tmp_path, full):
    (tmp_path / "empty").mkdir()
    for name in ("none", "empty"):
        check_free(tmp_path / name)
    with pytest.raises(UserError, match="full: exists already; give another folder"):
        check_free(full)
    check_free(full, overwrite="old.txt")
    with pytest.raises(UserError, match=r"full: is not overwritten, because it has no new\.txt"):
        check_free(full, overwrite="new.txt")


@pytest.mark.parametrize("overwrite", [None, "file"])
def test_a_file_is_never_replaced_by_a_folder(file, overwrite):
    with pytest.raises(UserError, match="file: is a file, must be a folder"):
        check_free(file, overwrite)


def test_an_input_is_never_replaced_by_its_result(file, tmp_path):
    with pytest.raises(UserError, match="file: is an input; give another name"):
        check_free_file(file, True, [tmp_path / "other", file])
    check_free_file(file, True, [tmp_path / "other"])
    (tmp_path / "link").symlink_to(tmp_path)
    for out in (tmp_path, tmp_path / "link", file):
        with pytest.raises(UserError, match=r"contains the input .*file; choose another folder"):
            check_inputs_outside(out, [file])
    check_inputs_outside(tmp_path / "other", [file])


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


def test_a_link_in_place_of_the_hidden_folder_is_not_followed(tmp_path, full):
    (tmp_path / ".data.partial").symlink_to(full)
    rejected = pytest.raises(UserError, match=r"\.data\.partial: cannot be written")
    with rejected, atomic_directory(tmp_path / "data"):
        raise AssertionError("nothing is written")
    assert names(full) == ["old.txt"]


def test_only_one_process_writes_a_folder(tmp_path, run_python):
    second = f"""
from tfr_moe.errors import UserError
from tfr_moe.utils.io import atomic_directory
try:
    with atomic_directory({str(tmp_path / "data")!r}):
        pass
except UserError as error:
    print(error)
"""
    with atomic_directory(tmp_path / "data") as folder:
        (folder / "one.txt").write_text("1")
        answer = run_python(second).stdout
    assert answer == f"{tmp_path}/data: is being written by another process\n"
    assert names(tmp_path / "data") == ["one.txt"]


def test_what_a_killed_process_left_is_removed(tmp_path):
    (tmp_path / ".data.partial" / "sub").mkdir(parents=True)
    (tmp_path / ".data.partial" / "half.txt").write_text("half")
    (tmp_path / ".data.old").mkdir()
    with atomic_directory(tmp_path / "data") as folder:
        assert names(folder) == []
    assert names(tmp_path) == ["data"]


def test_a_folder_whose_replacement_was_killed_half_way_comes_back(tmp_path, full):
    full.rename(tmp_path / ".full.old")
    with pytest.raises(ZeroDivisionError), atomic_directory(full, overwrite="old.txt"):
        raise ZeroDivisionError
    assert names(full) == ["old.txt"]
    full.rename(tmp_path / ".full.old")
    with pytest.raises(UserError, match="full: exists already"), atomic_directory(full):
        raise AssertionError("the work must not begin")
    assert names(full) == ["old.txt"]


def test_a_link_leads_to_the_folder_that_is_made(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "data")
    with atomic_directory(tmp_path / "link") as folder:
        (folder / "one.txt").write_text("1")
    assert names(tmp_path / "disk" / "data") == ["one.txt"]
    assert (tmp_path / "link").is_symlink()


def test_a_complete_folder_below_a_file_is_rejected_by_its_own_name(file):
    refusal = pytest.raises(UserError, match=r"file/x: cannot be made \(Not a directory\)")
    with refusal, atomic_directory(file / "x"):
        raise AssertionError("nothing is written")


def test_a_text_that_cannot_take_its_place_leaves_nothing(tmp_path):
    (tmp_path / "page.html").mkdir()
    with pytest.raises(IsADirectoryError):
        write_text(tmp_path / "page.html", "text")
    assert names(tmp_path) == ["page.html"]
