"""The image for training and the command line: what it copies, and what it runs."""

from __future__ import annotations

import json
import re

import pytest
from typer.main import get_command

from tfr_moe.cli.app import app


@pytest.fixture(scope="module")
def lines(repository):
    text = (repository / "docker" / "Dockerfile").read_text(encoding="utf-8")
    return text.replace("\\\n", " ").splitlines()


def test_all_that_it_copies_exists_and_reaches_the_builder(lines, repository):
    allowed = (repository / "docker" / "Dockerfile.dockerignore").read_text(encoding="utf-8")
    copied = [path for line in lines if line.startswith("COPY") for path in line.split()[1:-1]]
    assert {"setup.py", "LICENSE", "tfr_moe", "beam", "serving", "tuning"} <= set(copied)
    for path in copied:
        assert (repository / path).exists()
        assert f"!{path}\n" in allowed


def test_it_installs_by_the_constraints_of_its_python(lines, repository):
    (base,) = [line.split()[1] for line in lines if line.startswith("FROM")]
    version = re.search(r"python:(\d+\.\d+)", base)[1]
    (install,) = [line for line in lines if "pip install" in line]
    constraints = re.search(r"--constraint /src/(\S+)", install)[1]
    pins = (repository / constraints).read_text(encoding="utf-8")
    assert version in pins.splitlines()[0] and "tensorflow==2.15.1" in pins
    assert "'/src[all]'" in install


def test_the_commands_that_it_names_exist(lines):
    (entry,) = [line for line in lines if line.startswith("ENTRYPOINT")]
    assert json.loads(entry.split(maxsplit=1)[1]) == ["tfr-moe"]
    named = {m[1] for line in lines if (m := re.search(r"^#   docker run .* tfr-moe (\w+)", line))}
    assert named and named <= set(get_command(app).commands)
