"""A SavedModel run by a session gives what TensorFlow's own loader gives."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.serving.conftest import elwc, shop_items
from tfr_moe._compat import tf
from tfr_moe.serving.session import ModelSession

LISTS = [elwc(shop_items(count)) for count in (4, 1, 9)]


@pytest.mark.parametrize("model", ["plain", "mixture", "itemwise"])
@pytest.mark.parametrize("name", ["serving_default", "rank"])
def test_a_session_answers_as_tensorflows_loader_does(models: Path, signature, model, name):
    session = ModelSession(models / model / "1")
    expected = signature(model, name)(LISTS)
    found = session.run(name, {"inputs": np.array(LISTS, object)})
    assert found.keys() == expected.keys()
    for output, array in found.items():
        assert (array.dtype, array.shape) == (expected[output].dtype, expected[output].shape)
        np.testing.assert_allclose(array, expected[output], atol=1e-5)


def test_strings_come_as_arrays_of_bytes(models: Path):
    found = ModelSession(models / "plain" / "1").run("schema", {"inputs": np.array([b""], object)})
    assert found["schema"].dtype == object
    assert found["schema"][0].startswith(b"{")


def test_threads_that_ask_at_once_get_their_own_answers(models: Path):
    session = ModelSession(models / "mixture" / "1")
    lists = [elwc(shop_items(count)) for count in range(1, 20)]

    def scores(serialized: bytes) -> np.ndarray:
        return session.run("serving_default", {"inputs": np.array([serialized], object)})["scores"]

    alone = [scores(serialized) for serialized in lists]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(scores, lists * 10))
    for array, expected in zip(found, alone * 10, strict=True):
        np.testing.assert_allclose(array, expected, atol=1e-5)


def test_what_the_graph_refuses_is_tensorflows_own_error(models: Path):
    session = ModelSession(models / "plain" / "1")
    with pytest.raises(tf.errors.DataLossError):
        session.run("rank", {"inputs": np.array([b"garbage"], object)})


def test_loading_says_nothing_of_deprecation(models: Path, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        ModelSession(models / "plain" / "1")
    assert not caplog.records
