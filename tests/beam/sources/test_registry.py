"""Sources from outside of the package: modules by name."""

import subprocess
import sys

import pytest

from tfr_moe.beam import BuildOptions, build
from tfr_moe.beam import sources as public
from tfr_moe.beam.sources import load_source_modules, registry, sources
from tfr_moe.errors import UserError

MODULE = '''
"""Price lists: `query grade item` in each line."""
from tfr_moe.beam.sources import Input, RawRow, ReadFiles, lines, match, register

@register("price-lists-{name}")
def price_lists(pattern, schema, options):
    """Lines of query, grade and item."""
    files = match(pattern)
    return Input(ReadFiles(files, read), list(files), sum(files.values()))

def read(path, index):
    for number, text in lines(path):
        yield RawRow(index, number, dict(zip(("query", "grade", "item"), text.split())))
'''
SCHEMA = """
list_id: query
labels: [grade]
features: [{name: item, scope: example, kind: categorical}]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a module that registers a source, and its input."""
    monkeypatch.setattr(registry, "_SOURCES", dict(sources()))
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{tmp_path.name}_prices.py").write_text(MODULE.format(name=tmp_path.name))
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    (tmp_path / "prices.txt").write_text("q1 1 boots\nq1 0 shoes\nq2 1 hat\n")
    yield tmp_path
    sys.modules.pop(f"{tmp_path.name}_prices", None)


def test_a_module_of_the_working_directory_registers_a_source_for_build(folder):
    manifest = build(
        BuildOptions(
            f"price-lists-{folder.name}",
            f"{folder}/prices.txt",
            folder / "schema.yaml",
            folder / "data",
            validation_fraction=0.0,
            test_fraction=0.0,
            source_modules=(f"{folder.name}_prices",),
        )
    )
    assert manifest["rows"]["written"] == 3
    assert manifest["options"]["source_modules"] == [f"{folder.name}_prices"]


def test_a_module_that_cannot_be_imported_is_named():
    with pytest.raises(UserError, match=r"source module 'no\.such' cannot be imported: No module"):
        load_source_modules(["no.such"])


@pytest.mark.parametrize("arguments", [["--help"], ["SOURCE", "--help"]])
def test_help_of_build_knows_the_sources_of_a_module(folder, arguments):
    name = f"price-lists-{folder.name}"
    words = [word.replace("SOURCE", name) for word in arguments]
    command = ["build", "--source-module", f"{folder.name}_prices", *words]
    code = f"from tfr_moe.cli import main; main({command!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "Lines of query, grade and item." in done.stdout
    assert name in done.stdout


def test_all_names_a_source_needs_are_public():
    assert all(hasattr(public, name) for name in public.__all__)
    assert len(set(public.__all__)) == len(public.__all__)
