"""The experiments use only the library's public names, and the library does not know of them."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

MODULES = ("tfr_moe.errors", "tfr_moe.schema", "tfr_moe.serving.publish")
"""The only modules, other than packages, that experiments may import from."""
INSTALLED = ("tfr_moe", "beam", "serving", "tuning")


def imported_names(source: str) -> Iterator[tuple[str, str, int]]:
    """Yields module, name and line of each import of the library; `import a.b` has the name ""."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in INSTALLED:
                    yield alias.name, "", node.lineno
        elif isinstance(node, ast.ImportFrom) and not node.level:
            module = node.module or ""
            if module.partition(".")[0] in INSTALLED:
                for alias in node.names:
                    yield module, alias.name, node.lineno


def public_names(module: str) -> set[str] | None:
    """Returns the public names of a package or of one of `MODULES`; None if it is private."""
    if any(part.startswith("_") for part in module.split(".")):
        return None
    loaded = importlib.import_module(module)
    if hasattr(loaded, "__path__"):
        return set(loaded.__all__) if hasattr(loaded, "__all__") else None
    if module not in MODULES:
        return None
    return set(getattr(loaded, "__all__", [name for name in vars(loaded) if name[0] != "_"]))


def private_imports(source: str) -> list[str]:
    """Returns a message for each import of something that is not public."""
    result = []
    for module, name, line in imported_names(source):
        if not name:
            if module != "tfr_moe":
                result.append(f"line {line}: import tfr_moe, or names from {module}")
            continue
        names = public_names(module)
        if names is None:
            result.append(f"line {line}: {module} is not a package with __all__")
        elif name not in names:
            result.append(f"line {line}: {name} is not in the __all__ of {module}")
    return result


def test_the_experiments_use_public_names_only(repository: Path):
    paths = sorted((repository / "experiments").rglob("*.py"))
    assert len(paths) > 20
    actual = {
        str(path.relative_to(repository)): messages
        for path in paths
        if (messages := private_imports(path.read_text(encoding="utf-8")))
    }
    assert actual == {}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("from tfr_moe.training.run import train", "tfr_moe.training.run is not a package"),
        ("from tfr_moe.training import prepare", "prepare is not in the __all__ of"),
        (
            "def f():\n    from tfr_moe._compat import tf",
            "line 2: tfr_moe._compat is not a package",
        ),
        ("from tfr_moe.cli.app import main", "tfr_moe.cli.app is not a package"),
        ("import tfr_moe.data.folder", "import tfr_moe, or names from tfr_moe.data.folder"),
        ("from beam import sources", "beam"),
    ],
)
def test_a_private_import_is_found(source: str, message: str):
    (actual,) = private_imports(source)
    assert message in actual


def test_public_imports_are_allowed():
    source = (
        "import tfr_moe\nfrom tfr_moe import FeatureSchema\nfrom tfr_moe.errors import UserError\n"
        "from tfr_moe.schema import MASK\nfrom tfr_moe.training import train\n"
        "from experiments.common import runs\nimport numpy"
    )
    assert private_imports(source) == []


def test_the_library_does_not_import_the_experiments(repository: Path):
    actual = []
    for folder in INSTALLED:
        for path in (repository / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom):
                    names = [node.module or ""]
                if any(name.partition(".")[0] == "experiments" for name in names):
                    actual.append(f"{path}:{node.lineno}")
    assert actual == []
