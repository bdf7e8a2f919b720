"""What gets installed, and under which names."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tarfile
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
def built(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist of a copy of the tracked tree, and the wheel that is built from the sdist alone."""
    folder = tmp_path_factory.mktemp("wheel")
    # Built from a copy, so that no build/ or egg-info appears in the checkout.
    tracked = subprocess.run(
        ["git", "-C", repository, "ls-files", "-z"], check=True, capture_output=True
    ).stdout
    for name in filter(None, tracked.decode().split("\0")):
        if (repository / name).is_file():
            target = folder / "source" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((repository / name).read_bytes())
    code = "from setuptools.build_meta import build_sdist; build_sdist('..')"
    subprocess.run(
        [sys.executable, "-c", code], cwd=folder / "source", check=True, capture_output=True
    )
    (sdist,) = folder.glob("*.tar.gz")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "-q", "-w", folder, sdist], check=True
    )
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def wheel(built: tuple[Path, Path]) -> list[str]:
    """Names of the files in the wheel."""
    return zipfile.ZipFile(built[1]).namelist()


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


@pytest.mark.slow
def test_wheel_and_sdist_have_licence_readme_and_one_version(built: tuple[Path, Path]):
    sdist, wheel = built
    version = importlib.import_module("tfr_moe").__version__
    assert sdist.name == f"tfr_moe-{version}.tar.gz"
    with zipfile.ZipFile(wheel) as files:
        info = f"tfr_moe-{version}.dist-info"
        (licence,) = [n for n in files.namelist() if n.startswith(info) and n.endswith("/LICENSE")]
        assert b"Apache License" in files.read(licence)
        actual = files.read(f"{info}/METADATA").decode("utf-8")
    # README's first lines of Python import it.
    assert "\nRequires-Dist: pandas>=2.1\n" in actual
    assert f"Version: {version}\n" in actual and "Description-Content-Type: text/markdown" in actual
    with tarfile.open(sdist) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    assert {"LICENSE", "README.md", "setup.py", "pyproject.toml"} <= names


@pytest.mark.slow
def test_the_demo_runs_from_the_wheel_without_the_checkout_and_resumes(
    built: tuple[Path, Path], repository: Path, tmp_path: Path
):
    """Dependencies come from the environment of the tests; the package comes from the wheel.

    Each model has two seeds and one epoch, which is enough for a verdict.
    """
    with zipfile.ZipFile(built[1]) as files:
        files.extractall(tmp_path / "site")
    start = (
        "import sys; import tfr_moe, tfr_moe.beam, tfr_moe.serving, tfr_moe.tuning\n"
        "modules = [tfr_moe, tfr_moe.beam, tfr_moe.serving, tfr_moe.tuning]\n"
        f"assert all(m.__file__.startswith({str(tmp_path)!r}) for m in modules), modules\n"
        "from functools import partial; from tfr_moe.cli import demo, main\n"
        "demo.SETTINGS.update(num_epochs=1, steps_per_execution=1, num_experts=4, top_k=2)\n"
        "demo.SETTINGS.update(expert_hidden_dims=(8,))\n"
        "demo.compare = partial(demo.compare, budget=0)\n"
        "main(['demo', '--out', 'demo', '--sessions', '300'])"
    )

    def demo() -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-c", start],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert str(repository) not in done.stdout + done.stderr
        return done

    first = demo()
    assert list((tmp_path / "demo" / "models").glob("*/1/saved_model.pb"))
    assert (tmp_path / "demo" / "comparison" / "leaderboard.json").exists()
    verdict = first.stdout[first.stdout.index("Ship ") :]
    assert "is served: the best by validation session_auc" in verdict
    assert "Try next:" in verdict
    again = demo()
    assert "epoch 1/" in first.stderr and "epoch 1/" not in again.stderr
    assert again.stdout.endswith(verdict)
