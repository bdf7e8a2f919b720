"""The API pages show all public names, and their examples as code."""

import importlib
import re

import pytest

from tests.test_lazy_names import AT_ONCE, PACKAGES


@pytest.mark.parametrize("package", [*AT_ONCE, *PACKAGES])
def test_every_package_is_on_a_page(package, repository):
    pages = (repository / "docs" / "api").glob("*.md")
    documented = {
        name for page in pages for name in re.findall(r"^::: (.+)$", page.read_text(), re.M)
    }
    assert f"tfr_moe.{package}" in documented


@pytest.fixture(scope="module")
def read(repository):
    """The package as mkdocstrings reads it, without running it."""
    griffe = pytest.importorskip("griffe")
    extensions = griffe.load_extensions(str(repository / "scripts" / "griffe_extension.py"))
    return griffe.load(
        "tfr_moe", search_paths=[repository], extensions=extensions, docstring_parser="google"
    )


@pytest.mark.parametrize("package", ["analysis", "data", "evaluation", "layers", "report"])
def test_all_public_names_are_found_in_the_source(read, package):
    names = importlib.import_module(f"tfr_moe.{package}").__all__
    assert sorted(read[package].exports) == sorted(names)
    for name in names:
        assert read[package].members[name].target.docstring, name


def test_an_example_is_code_and_not_text(read):
    sections = read["losses.pointwise.RMSELoss"].docstring.parsed
    (examples,) = (section for section in sections if section.kind.value == "examples")
    assert examples.value[0][1].startswith(">>> loss = RMSELoss(max_label=4)")
