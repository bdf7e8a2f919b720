"""Requests recorded by the client are those of a request log of TensorFlow Serving."""

import random
from pathlib import Path

import numpy as np
import pytest

from tests.serving.conftest import CONTEXT, shop_items
from tests.serving.models import SHOP
from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.serving.client import RankingClient, RequestRecorder
from tfr_moe.serving.client.protos import PredictRequest, PredictResponse
from tfr_moe.serving.dev_server import DevServer
from tfr_moe.serving.versions import read_log


def test_the_client_records_what_it_sends_and_gets(server: DevServer, tmp_path: Path):
    path = tmp_path / "requests"
    recorder = RequestRecorder(path)
    with RankingClient(server.target, "plain", SHOP, timeout=20.0, recorder=recorder) as client:
        scores = client.predict(CONTEXT, shop_items(3))
        ranking = client.rank(CONTEXT, shop_items(4))
    first, second = read_log(path)
    assert first.request.model_spec.signature_name == "serving_default"
    np.testing.assert_array_equal(tf.make_ndarray(first.response.outputs["scores"])[0], scores)
    assert second.request.model_spec.name == "plain"
    order = tf.make_ndarray(second.response.outputs["order"])[0].tolist()
    assert order == [item.index for item in ranking.items]


def test_a_share_is_recorded(tmp_path: Path):
    random.seed(1)
    path = tmp_path / "requests"
    recorder = RequestRecorder(path, share=0.25)
    for _ in range(400):
        recorder(PredictRequest(), PredictResponse())
    # 100 are expected; five standard deviations are 43.
    assert abs(len(list(read_log(path))) - 100) < 43


def test_errors_are_one_line(tmp_path: Path):
    with pytest.raises(UserError, match=r"share must be above 0 and at most 1\. Received: share=0"):
        RequestRecorder(tmp_path / "a", share=0)
    with pytest.raises(UserError, match="cannot be written"):
        RequestRecorder(tmp_path / "none" / "a")(PredictRequest(), PredictResponse())
