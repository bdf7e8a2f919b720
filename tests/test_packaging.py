"""What gets installed, and under which names."""

from __future__ import annotations

import importlib
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest


@pytest.mark.smoke
@pytest.mark.parametrize("name", ["beam", "serving", "tuning"])
def test_the_outer_folders_are_installed_below_the_package(name: str, repository: Path):
    module = importlib.import_module(f"tfr_moe.{name}")
    assert Path(module.__file__).parent == repository / name


def test_the_command_is_declared():
    (command,) = metadata.entry_points(group="console_scripts", name="tfr-moe")
    assert command.value == "tfr_moe.cli:main"


def test_version_and_metadata_agree():
    assert metadata.version("tfr_moe") == importlib.import_module("tfr_moe").__version__


@pytest.mark.parametrize(
    "extra", ["beam", "serving", "tuning", "baselines", "report", "gpu", "dev", "docs", "all"]
)
def test_every_extra_is_declared(extra: str):
    assert extra in metadata.metadata("tfr_moe").get_all("Provides-Extra")


def test_the_two_lanes_divide_the_python_versions():
    needs = metadata.requires("tfr_moe") or []
    for distribution in ("tensorflow", "tensorflow-ranking", "tensorflow-serving-api"):
        lanes = [
            need for need in needs if need.split(";")[0].rstrip("=<>.0123456789") == distribution
        ]
        markers = sorted(need.split(";")[1].replace('"', "'").strip() for need in lanes)
        assert markers == ["python_version < '3.12'", "python_version >= '3.12'"]


@pytest.fixture(scope="module")
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Names of the files in a wheel built from a copy of the tracked tree."""
    folder = tmp_path_factory.mktemp("wheel")
    # Built from an archive, so that no build/ or egg-info appears in the checkout.
    archive = subprocess.run(
        ["git", "-C", repository, "ls-files", "-z"], check=True, capture_output=True
    ).stdout
    for name in filter(None, archive.decode().split("\0")):
        if (repository / name).is_file():
            target = folder / "source" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((repository / name).read_bytes())
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "-q", "-w", folder, folder / "source"],
        check=True,
    )
    (built,) = folder.glob("*.whl")
    return zipfile.ZipFile(built).namelist()


@pytest.mark.slow
def test_the_wheel_puts_nothing_generic_at_the_top(wheel: list[str]):
    top = {name.split("/")[0] for name in wheel}
    assert "tfr_moe" in top
    assert all(name == "tfr_moe" or name.endswith(".dist-info") for name in top)


@pytest.mark.slow
def test_the_wheel_contains_every_module_of_the_tree(wheel: list[str], repository: Path):
    tracked = subprocess.run(
        ["git", "-C", repository, "ls-files", "tfr_moe", "beam", "serving", "tuning"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    modules = [name for name in tracked if name.endswith(".py") and (repository / name).is_file()]
    expected = {n if n.startswith("tfr_moe/") else f"tfr_moe/{n}" for n in modules}
    assert expected <= set(wheel)
    assert {"tfr_moe/beam/__init__.py", "tfr_moe/py.typed"} <= set(wheel)


@pytest.mark.slow
def test_the_wheel_contains_no_experiments(wheel: list[str]):
    assert not [name for name in wheel if "experiments" in name or "configs" in name]
