import numpy as np
import pytest

from experiments.common.stored_results import load_result, save_result
from tests.evaluation.lists import result
from tfr_moe.errors import UserError


def test_a_stored_result_comes_back(tmp_path):
    before = result([0.5, np.nan], [0.25, 1.0])
    save_result(before, tmp_path / "lists.npz")
    after = load_result(tmp_path / "lists.npz")
    np.testing.assert_array_equal(after.list_ids, before.list_ids)
    np.testing.assert_array_equal(after.categories, before.categories)
    for name, values in before.values.items():
        np.testing.assert_array_equal(after.values[name], values)
        np.testing.assert_array_equal(after.nothing_relevant[name], before.nothing_relevant[name])
    assert [path.name for path in tmp_path.iterdir()] == ["lists.npz"]
    (tmp_path / "lists.npz").write_bytes(b"no archive")
    with pytest.raises(UserError, match="holds no per-list result"):
        load_result(tmp_path / "lists.npz")
