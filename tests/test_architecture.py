"""Import rules, checked by parsing every module of the tree.

`RULES` lists what each part may import; a module of a part without a row fails. `OUTSIDE` lists
which parts may import a third-party package. Imports inside functions count, and so does
`importlib.import_module("literal")`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

# ---------------------------------------------------------------------------------------- the rules

GROUPS = {
    "FORMAT": "errors schema elwc utils",
    "MODEL": "FORMAT _compat config layers losses metrics scorers data",
    "RUN": "MODEL training baselines evaluation",
}

# part or parts: what they may import
RULES = {
    "__init__": "_compat errors schema ranker comparison",
    "_compat errors": "",
    "tables": "errors",
    "utils": "_compat errors",
    "schema": "_compat errors tables utils",
    "elwc": "errors schema",
    "config": "errors schema utils",
    "layers": "FORMAT _compat config",
    "losses": "_compat errors layers",
    "metrics": "_compat errors layers utils",
    "scorers": "FORMAT _compat config layers",
    "data": "FORMAT _compat tables",
    "beam": "FORMAT _compat",
    "training": "MODEL",
    "baselines": "MODEL training",
    "evaluation": "MODEL training baselines",
    "analysis reranking tuning": "RUN",
    "synthetic serving.client": "FORMAT",
    "serving": "FORMAT _compat data serving.client",  # development server, load test
    "serving.export": "RUN serving serving.client",
    "serving.publish": "RUN analysis serving serving.client serving.export",
    "report": "RUN analysis tuning serving.client serving.export",
    "ranker": "RUN analysis report serving.client serving.export tables",
    "comparison": "RUN report",
    "cli": "RUN comparison tables analysis reranking tuning beam report synthetic "
    "serving serving.client serving.export serving.publish",
}

# packages: the parts that may import them
OUTSIDE = {
    "tensorflow tensorflow_ranking keras tf_keras": "_compat",
    "apache_beam": "beam",
    "keras_tuner kerastuner": "tuning _compat",
    "grpc": "serving serving.client",
    "lightgbm xgboost": "baselines",
}


def expanded(names: str) -> set[str]:
    """The parts in a text of parts and groups."""
    return {
        part
        for name in names.split()
        for part in (expanded(GROUPS[name]) if name in GROUPS else {name})
    }


MAY_IMPORT = {part: expanded(names) for parts, names in RULES.items() for part in parts.split()}
MAY_BE_IMPORTED_BY = {
    package: set(parts.split())
    for packages, parts in OUTSIDE.items()
    for package in packages.split()
}

FRAMEWORK_NAMES = {
    "tf",
    "tfr",
    "tensorflow",
    "tensorflow_ranking",
    "keras",
    "tf_keras",
    "keras_tuner",
}
OUTER = ("beam", "serving", "tuning")

# -------------------------------------------------------------------------------------- the checker


class Import(NamedTuple):
    """One imported module, with the line that imports it."""

    name: str
    line: int


def imports_of(source: str, module: str, is_package: bool = False) -> Iterator[Import]:
    """Every module that a source text imports, relative ones resolved against `module`.

    `from a.b import c` yields `a.b.c`, since c may be a module.
    """
    package = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            above = parts[: len(parts) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield Import(f"{base}.{alias.name}", node.lineno)
        elif isinstance(node, ast.Call) and node.args:
            called = ast.unparse(node.func).rpartition(".")[2]
            first = node.args[0]
            is_text = isinstance(first, ast.Constant) and isinstance(first.value, str)
            if called in ("import_module", "__import__") and is_text:
                yield Import(first.value, node.lineno)


def part_of(module: str) -> str | None:
    """The part that a dotted name belongs to; None outside of tfr_moe."""
    head, _, rest = module.partition(".")
    if head in OUTER:
        return head  # `import beam` finds the folder in a checkout, but nothing once installed
    if head != "tfr_moe":
        return None
    room = ".".join(rest.split(".")[:2])
    name = room if room in MAY_IMPORT else rest.split(".")[0]
    # `from tfr_moe import __version__` and the like import the package itself.
    return "__init__" if not name or name.startswith("__") else name


def is_version(node: ast.AST) -> bool:
    """`tf.__version__`, `tf.version`, `keras.version` and the like."""
    return (
        isinstance(node, ast.Attribute)
        and node.attr in ("__version__", "version")
        and ast.unparse(node.value) in FRAMEWORK_NAMES
    )


def version_checks(source: str) -> Iterator[tuple[int, str]]:
    """Framework versions that are compared or parsed; recording one is allowed."""
    for node in ast.walk(ast.parse(source)):
        inside = ast.walk(node) if isinstance(node, ast.Compare) else ()
        if isinstance(node, ast.Attribute) and is_version(node.value):
            yield node.lineno, ast.unparse(node.value)
        yield from ((node.lineno, ast.unparse(result)) for result in inside if is_version(result))


def is_proto(name: str) -> bool:
    """Message classes under `tensorflow.core`, which are the same whatever the version."""
    return name.startswith("tensorflow.core.") and "_pb2" in name


def violations(source: str, module: str, is_package: bool = False) -> list[str]:
    """The violations of a module, one line each."""
    part = part_of(module)
    if part not in MAY_IMPORT:
        return [f"{module}: part {part!r} has no row in RULES"]
    result = []
    for name, line in imports_of(source, module, is_package):
        target = part_of(name)
        if name.split(".")[0] in OUTER:
            result.append(f"{module}:{line} imports {name}: its name is tfr_moe.{name}")
        if target is not None and target not in {part, "__init__", *MAY_IMPORT[part]}:
            result.append(f"{module}:{line} imports {name}: {part} may not import {target}")
        package = name.split(".")[0]
        allowed = MAY_BE_IMPORTED_BY.get(package)
        if allowed and part not in allowed and not is_proto(name):
            result.append(f"{module}:{line} imports {name}: only {sorted(allowed)} may")
    if part != "_compat":
        result += [
            f"{module}:{line} depends on {text}: only _compat decides by versions"
            for line, text in version_checks(source)
        ]
    return result


def tree(root: Path) -> Iterator[tuple[Path, str, bool]]:
    """Every source file of the project with its installed name and whether it is a package."""
    for folder, prefix in [("tfr_moe", ""), *((name, "tfr_moe.") for name in OUTER)]:
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            yield path, prefix + ".".join(parts[:-1] if is_package else parts), is_package


# ---------------------------------------------------------------------------------------- the tests


def test_every_module_follows_the_import_rules(repository: Path):
    actual = [
        line
        for path, module, is_package in tree(repository)
        for line in violations(path.read_text(encoding="utf-8"), module, is_package)
    ]
    assert not actual, "\n" + "\n".join(actual)


def test_the_walk_finds_the_whole_tree(repository: Path):
    modules = {module for _, module, _ in tree(repository)}
    assert {"tfr_moe", "tfr_moe._compat", "tfr_moe.layers.gating", "tfr_moe.beam"} <= modules
    assert all(part_of(module) in MAY_IMPORT for module in modules)


def test_the_rules_have_no_cycle():
    done: set[str] = set()
    waiting = dict(MAY_IMPORT)
    while waiting:
        ready = [part for part, needs in waiting.items() if needs - {part} <= done]
        assert ready, f"the parts {sorted(waiting)} import each other"
        done.update(ready)
        waiting = {part: needs for part, needs in waiting.items() if part not in ready}


@pytest.mark.parametrize(
    ("module", "source", "reason"),
    [
        ("tfr_moe.layers.x", "from tfr_moe.scorers import MixtureScorer", "layers may not import"),
        ("tfr_moe.layers.x", "from ..scorers import base", "layers may not import scorers"),
        ("tfr_moe.layers.x", "from .. import training", "layers may not import training"),
        ("tfr_moe.scorers.x", "from tfr_moe.training import fit", "may not import training"),
        ("tfr_moe.training.x", "import tfr_moe.tuning.sweep", "may not import tuning"),
        ("tfr_moe.training.x", "from tfr_moe.evaluation import per_list", "import evaluation"),
        ("tfr_moe.evaluation.x", "from tfr_moe import analysis", "may not import analysis"),
        ("tfr_moe.beam.x", "def f():\n    from tfr_moe.data import reader", "import data"),
        (
            "tfr_moe.beam.x",
            "from tfr_moe.schema import FeatureSchema\nimport beam.elwc",
            "its name",
        ),
        ("tfr_moe.serving.x", "from tfr_moe.tuning import sweep", "may not import tuning"),
        ("tfr_moe.serving.client.x", "from tfr_moe.data import DataFolder", "import data"),
        ("tfr_moe.serving.client.x", "from .. import versions", "serving.client may not import"),
        ("tfr_moe.schema", "import tensorflow as tf", "only ['_compat'] may"),
        ("tfr_moe.layers.x", "def f():\n    import keras.ops", "only ['_compat'] may"),
        (
            "tfr_moe.losses",
            "import importlib\nimportlib.import_module('tf_keras')",
            "only ['_compat'] may",
        ),
        ("tfr_moe.losses", "from tensorflow.python.ops import math_ops", "only ['_compat'] may"),
        ("tfr_moe.training.x", "import apache_beam as beam", "only ['beam'] may"),
        (
            "tfr_moe.training.x",
            "from keras_tuner import Objective",
            "only ['_compat', 'tuning'] may",
        ),
        ("tfr_moe.cli", "import grpc", "only ['serving', 'serving.client'] may"),
        ("tfr_moe.losses", "def f(tf):\n    return tf.__version__ > '2.16'", "decides by versions"),
        ("tfr_moe.losses", "def f(tf):\n    return tf.version.VERSION", "decides by versions"),
        ("tfr_moe.helpers.x", "", "has no row in RULES"),
    ],
)
def test_a_planted_violation_is_found(module: str, source: str, reason: str):
    actual = violations(source, module)
    assert len(actual) == 1
    assert reason in actual[0]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("tfr_moe.layers.x", "from tfr_moe._compat import tf\nfrom tfr_moe.layers import gating"),
        (
            "tfr_moe.beam.x",
            "import apache_beam\nfrom .elwc import encode\nfrom tfr_moe import schema",
        ),
        ("tfr_moe.serving.x", "import grpc\nfrom tensorflow_serving.apis import predict_pb2"),
        ("tfr_moe.tuning.x", "import keras_tuner\nfrom tfr_moe.training import fit"),
        ("tfr_moe.data.x", "from tfr_moe import __version__\nimport numpy as np"),
        ("tfr_moe.training.x", "def f(tf):\n    return {'tensorflow': tf.__version__}"),
        ("tfr_moe.serving.x", "from tensorflow.core.protobuf import saved_model_pb2"),
    ],
)
def test_allowed_imports_are_not_reported(module: str, source: str):
    assert violations(source, module) == []


def test_a_package_resolves_its_relative_imports_against_itself():
    source = "from .gating import Gate\nfrom ..schema import MASK"
    names = [name for name, _ in imports_of(source, "tfr_moe.layers", is_package=True)]
    assert names == ["tfr_moe.layers.gating.Gate", "tfr_moe.schema.MASK"]


def test_the_page_draws_and_describes_every_part(repository: Path):
    page = (repository / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawing, table = page.split("```")[3], page.split("\n| package")[1].split("\n\n")[0]
    parts = {part for part in MAY_IMPORT if "." not in part and part != "__init__"}
    assert parts <= set(re.findall(r"\w+", drawing))
    assert parts <= set(re.findall(r"\w+", " ".join(re.findall(r"^\| (.*?) \|", table, re.M))))


HEAVY = (
    "tensorflow",
    "tensorflow_ranking",
    "keras",
    "tf_keras",
    "apache_beam",
    "keras_tuner",
    "grpc",
)
KERAS = ("keras", "tf_keras", "tensorflow_ranking", "keras_tuner")


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("tfr_moe", HEAVY),
        ("tfr_moe.schema", HEAVY),
        ("tfr_moe.elwc.values", HEAVY),
        ("tfr_moe.data.folder", HEAVY),
        ("tfr_moe.cli", HEAVY),
        ("tfr_moe.beam.build", KERAS),
        ("tfr_moe.serving.client", (*KERAS, "tensorflow", "tensorflow_serving")),
    ],
)
def test_importing_a_module_leaves_out(run_python, module: str, absent: tuple):
    done = run_python(
        f"import sys\nbefore = set(sys.modules)\nimport {module}\n"
        f"print(*(m for m in set(sys.modules) - before if m.split('.')[0] in {absent!r}))"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""
