"""Packages that load their names on first use: what they promise exists, and nothing else does."""

import importlib
import subprocess
import sys

import pytest

PACKAGES = ("evaluation", "metrics", "report", "training", "tuning")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_can_be_loaded(package: str) -> None:
    module = importlib.import_module(f"tfr_moe.{package}")
    assert dir(module) == sorted(module.__all__)
    for name in module.__all__:
        assert getattr(module, name) is not None


@pytest.mark.parametrize("package", PACKAGES)
def test_an_unknown_name_is_an_attribute_error_that_names_the_package(package: str) -> None:
    module = importlib.import_module(f"tfr_moe.{package}")
    with pytest.raises(AttributeError, match=f"'tfr_moe.{package}' has no attribute 'nothing'"):
        _ = module.nothing


def test_no_package_loads_tensorflow_before_a_name_needs_it() -> None:
    imports = "; ".join(f"import tfr_moe.{package}" for package in PACKAGES)
    program = f"import sys; {imports}; assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
