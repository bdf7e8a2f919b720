"""The import rules, held by parsing every module of the tree.

`MAY_IMPORT` is the map: a row for each part, with the parts that it may import. A part without a row
fails, so that a new module has to be given its place. `OUTSIDE` says who may import what from outside.
Imports inside functions count like any other, as does `importlib.import_module("literal")`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

# ---------------------------------------------------------------------------------------- the rules

DATA_CONTRACT = {"errors", "folders", "schema", "wire", "encoding", "row_encoding"}
CORE = {*DATA_CONTRACT, "_compat", "reduction", "levels", "metric_names", "progress"}
MODEL = {*CORE, "config", "tasks", "data", "layers", "losses", "metrics", "scorers"}
PARTS = {*MODEL, "training", "tuning", "beam", "synthetic", "serving", "baselines"}
PARTS |= {"evaluation", "analysis"}

MAY_IMPORT: dict[str, set[str]] = {
    "_compat": set(),
    "errors": set(),
    "census_income": set(),
    "folders": {"errors"},
    "cluster": {"errors"},
    "children": set(),
    "local_workers": {"errors", "children", "cluster"},
    "progress": {"errors"},
    "webpage": set(),
    "metric_names": {"errors"},
    "schema": {"_compat", "errors"},
    "wire": set(),
    "encoding": {"errors", "schema", "wire"},
    "row_encoding": {"errors", "schema", "wire", "encoding"},
    "reduction": {"_compat"},
    "levels": {"_compat"},
    "query_categories": {"_compat", "errors", "folders"},
    "tasks": {"errors", "schema"},
    "presets": {"errors"},
    "model_names": set(),
    "config_checks": {"model_names", "tasks"},
    "config": {
        "config_checks",
        "errors",
        "metric_names",
        "model_names",
        "presets",
        "schema",
        "tasks",
    },
    "losses": CORE,
    "metrics": CORE,
    "layers": {*CORE, "tasks"},
    "scorers": {*CORE, "layers"},
    "data": CORE,
    "training": {*MODEL, "cluster"},
    "tuning": {*MODEL, "children", "training", "baselines", "evaluation", "webpage"},
    "beam": {*DATA_CONTRACT, "_compat", "census_income"},
    "synthetic": DATA_CONTRACT,
    "serving": {*DATA_CONTRACT, "_compat", "data"},
    "baselines": {*MODEL, "cluster", "training"},
    "evaluation": {*MODEL, "training", "baselines"},
    "analysis": {*MODEL, "training", "baselines", "evaluation"},
    # The command line: cli.py and the modules that do what one command does. Only they see everything.
    "comparison": {*MODEL, "training", "baselines", "evaluation", "analysis"},
    "reporting": {
        *MODEL,
        "training",
        "baselines",
        "evaluation",
        "analysis",
        "comparison",
        "serving",
        "webpage",
    },
    "reranking": {*MODEL, "training", "baselines", "evaluation", "comparison"},
    "variants": {*MODEL, "training"},
    "release": {*MODEL, "training", "serving", "variants"},
    "prediction": {*DATA_CONTRACT, "beam", "serving"},
    "vectors": {*MODEL, "training", "beam", "serving", "prediction"},
    "reproduce": {
        *MODEL,
        "analysis",
        "comparison",
        "reranking",
        "training",
        "tuning",
        "evaluation",
        "beam",
        "synthetic",
        "census_income",
    },
    "retraining": {*MODEL, "training", "evaluation", "tuning", "comparison"},
    "demo": {*PARTS, "comparison", "release"},
    "commands": {
        *PARTS,
        "children",
        "cluster",
        "local_workers",
        "variants",
        "query_categories",
        "prediction",
        "vectors",
        "comparison",
        "reporting",
        "reranking",
        "release",
        "reproduce",
        "retraining",
    },
    "cli": {"errors", "commands", "demo"},
    "": {"_compat", "errors", "schema"},  # tfr_moe/__init__.py itself
}

OUTSIDE: list[tuple[str, set[str], set[str]]] = [
    (
        "only _compat imports the frameworks",
        {"tensorflow", "tensorflow_ranking", "keras", "tf_keras"},
        {"_compat"},
    ),
    ("only beam imports Apache Beam", {"apache_beam"}, {"beam"}),
    (
        "only tuning and _compat import KerasTuner",
        {"keras_tuner", "kerastuner"},
        {"tuning", "_compat"},
    ),
    ("only serving and tuning import gRPC", {"grpc"}, {"serving", "tuning"}),
    ("only baselines import tree libraries", {"lightgbm", "xgboost"}, {"baselines"}),
]

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
    """The part of the map that a dotted name belongs to; None outside of tfr_moe."""
    head, _, rest = module.partition(".")
    if head in OUTER:
        return head  # `import beam` finds the folder in a checkout, but nothing once installed
    if head != "tfr_moe":
        return None
    name = rest.split(".")[0]
    # `from tfr_moe import __version__` and the like reach the package itself.
    return name if name in MAY_IMPORT else ("" if not name or name.startswith("__") else name)


def is_version(node: ast.AST) -> bool:
    """`tf.__version__`, `tf.version`, `keras.version` and the like."""
    return (
        isinstance(node, ast.Attribute)
        and node.attr in ("__version__", "version")
        and ast.unparse(node.value) in FRAMEWORK_NAMES
    )


def version_questions(source: str) -> Iterator[tuple[int, str]]:
    """Framework versions that are compared or taken apart; writing one down is no question."""
    for node in ast.walk(ast.parse(source)):
        inside = ast.walk(node) if isinstance(node, ast.Compare) else ()
        if isinstance(node, ast.Attribute) and is_version(node.value):
            yield node.lineno, ast.unparse(node.value)
        yield from ((node.lineno, ast.unparse(found)) for found in inside if is_version(found))


def is_proto(name: str) -> bool:
    """Message classes under `tensorflow.core`, which are the same whatever the version."""
    return name.startswith("tensorflow.core.") and "_pb2" in name


def violations(source: str, module: str, is_package: bool = False) -> list[str]:
    """What a module does against the rules, a line each."""
    part = part_of(module)
    if part not in MAY_IMPORT:
        return [f"{module}: part {part!r} has no row in MAY_IMPORT: give it its place"]
    found = []
    for name, line in imports_of(source, module, is_package):
        target = part_of(name)
        if name.split(".")[0] in OUTER:
            found.append(f"{module}:{line} imports {name}: its name is tfr_moe.{name}")
        if target is not None and target not in {part, "", *MAY_IMPORT[part]}:
            found.append(f"{module}:{line} imports {name}: {part} may not import {target}")
        for rule, roots, allowed in OUTSIDE:
            if name.split(".")[0] in roots and part not in allowed and not is_proto(name):
                found.append(f"{module}:{line} imports {name}: {rule}")
    if part != "_compat":
        found += [
            f"{module}:{line} asks for {text}: only _compat decides by versions"
            for line, text in version_questions(source)
        ]
    return found


def tree(root: Path) -> Iterator[tuple[Path, str, bool]]:
    """Every source file of the project with its installed name and whether it is a package."""
    for folder, prefix in [("tfr_moe", ""), *((name, "tfr_moe.") for name in OUTER)]:
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            yield path, prefix + ".".join(parts[:-1] if is_package else parts), is_package


# ---------------------------------------------------------------------------------------- the tests


def test_every_module_keeps_the_import_rules(repository: Path):
    found = [
        line
        for path, module, is_package in tree(repository)
        for line in violations(path.read_text(encoding="utf-8"), module, is_package)
    ]
    assert not found, "\n" + "\n".join(found)


def test_the_tree_is_found_whole(repository: Path):
    modules = {module for _, module, _ in tree(repository)}
    assert {"tfr_moe", "tfr_moe._compat", "tfr_moe.layers.gating", "tfr_moe.beam"} <= modules
    assert all(part_of(module) in MAY_IMPORT for module in modules)


def test_the_map_has_no_cycle():
    done: set[str] = set()
    waiting = dict(MAY_IMPORT)
    while waiting:
        ready = [part for part, needs in waiting.items() if needs - {part} <= done]
        assert ready, f"the parts {sorted(waiting)} import each other in a circle"
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
        ("tfr_moe.serving.x", "from tfr_moe.layers import mixture", "may not import layers"),
        ("tfr_moe.schema", "import tensorflow as tf", "only _compat imports the frameworks"),
        ("tfr_moe.layers.x", "def f():\n    import keras.ops", "only _compat imports"),
        ("tfr_moe.losses", "import importlib\nimportlib.import_module('tf_keras')", "only _compat"),
        ("tfr_moe.losses", "from tensorflow.python.ops import math_ops", "only _compat"),
        ("tfr_moe.training.x", "import apache_beam as beam", "only beam imports Apache Beam"),
        ("tfr_moe.training.x", "from keras_tuner import Objective", "import KerasTuner"),
        ("tfr_moe.cli", "import grpc", "only serving and tuning import gRPC"),
        ("tfr_moe.losses", "def f(tf):\n    return tf.__version__ > '2.16'", "decides by versions"),
        ("tfr_moe.losses", "def f(tf):\n    return tf.version.VERSION", "decides by versions"),
        ("tfr_moe.helpers.x", "", "has no row in MAY_IMPORT"),
    ],
)
def test_a_planted_violation_is_found(module: str, source: str, reason: str):
    found = violations(source, module)
    assert len(found) == 1
    assert reason in found[0]


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
def test_what_the_map_allows_is_not_reported(module: str, source: str):
    assert violations(source, module) == []


def test_a_package_resolves_its_relative_imports_against_itself():
    source = "from .gating import Gate\nfrom ..schema import MASK"
    names = [name for name, _ in imports_of(source, "tfr_moe.layers", is_package=True)]
    assert names == ["tfr_moe.layers.gating.Gate", "tfr_moe.schema.MASK"]


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
        ("tfr_moe.encoding", HEAVY),
        ("tfr_moe.cli", HEAVY),
        ("tfr_moe.beam.pipeline", KERAS),
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
