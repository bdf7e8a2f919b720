"""What packages promise exists and is all that completion shows, loaded at once or on first use."""

import importlib
import subprocess
import sys

import pytest

PACKAGES = ("analysis", "baselines", "comparison", "data", "evaluation", "metrics", "report")
PACKAGES += ("serving.export", "training", "tuning")
AT_ONCE = ("beam", "beam.sources", "config", "elwc", "layers", "losses", "schema", "scorers")
AT_ONCE += ("reranking", "serving.client", "synthetic", "tables")


@pytest.mark.parametrize("package", ["", *PACKAGES, *AT_ONCE])
def test_every_public_name_can_be_loaded_and_completion_shows_no_other(package: str) -> None:
    module = importlib.import_module(f"tfr_moe.{package}".rstrip("."))
    assert dir(module) == sorted(module.__all__)
    for name in module.__all__:
        assert getattr(module, name) is not None


def test_completion_shows_rooms_and_the_ranker_before_anything_is_loaded() -> None:
    program = "import tfr_moe; print(*dir(tfr_moe))"
    command = [sys.executable, "-c", program]
    completions = subprocess.run(
        command, check=True, timeout=120, capture_output=True, text=True
    ).stdout
    assert {"FeatureSchema", "Ranker", "layers", "losses", "metrics"} <= set(completions.split())


@pytest.mark.parametrize("package", PACKAGES)
def test_an_unknown_name_is_an_attribute_error_that_names_the_package(package: str) -> None:
    module = importlib.import_module(f"tfr_moe.{package}")
    with pytest.raises(AttributeError, match=f"'tfr_moe.{package}' has no attribute 'nothing'"):
        _ = module.nothing


def test_no_package_loads_tensorflow_before_a_name_needs_it() -> None:
    imports = "; ".join(f"import tfr_moe.{package}" for package in PACKAGES)
    program = f"import sys; {imports}; assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
