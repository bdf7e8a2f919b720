from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def example(repository: Path) -> Callable[[str], ModuleType]:
    """Loads examples/<name>/prepare.py as a module."""

    def load(name: str) -> ModuleType:
        path = repository / "examples" / name / "prepare.py"
        spec = importlib.util.spec_from_file_location(f"prepare_{name}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load
