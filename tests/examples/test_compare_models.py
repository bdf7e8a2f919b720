"""What the comparison of models prints, from results that are made up."""

import importlib.util

import numpy as np
import pytest

from tests.evaluation.test_claims import result


@pytest.fixture(scope="module")
def compare_models(repository):
    path = repository / "examples" / "compare_models.py"
    spec = importlib.util.spec_from_file_location("compare_models", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_model_is_tested_once_against_each_reference_before_it(compare_models):
    rng = np.random.default_rng(0)
    results = {
        name: [result(rng.random(50)) for _ in range(3)] for name in ("dnn", "moe", "hsc_moe")
    }
    found = compare_models.compared(results, ("mrr",))
    pairs = [(claim.model, claim.reference) for claim in found]
    assert pairs == [("moe", "dnn"), ("hsc_moe", "dnn"), ("hsc_moe", "moe")]
    table = compare_models.summary(results, ("mrr",), found)
    assert table["moe"]["mrr"]["minus_dnn"][0] == found[0].difference
    text = compare_models.markdown(table, dict.fromkeys(results, 1e-3), ("mrr",))
    row = next(line for line in text.splitlines() if line.startswith("| dnn |"))
    assert row.endswith("|  |  |")
