"""Answers written by hand as rankings, and the address and size of requests."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest

from tests.serving.conftest import CONTEXT, shop_items
from tests.serving.models import SHOP
from tfr_moe.cli.serving import ranking_json
from tfr_moe.errors import UserError
from tfr_moe.serving.client import RankingClient, RequestError
from tfr_moe.serving.client.protos import PredictRequest, PredictResponse, fill_tensor
from tfr_moe.serving.client.ranking import ranking_of

ITEMS = shop_items(8)


def ranked(scores: list[float], version: int = 3) -> Any:
    """What the signature `rank` answers to items with these scores."""
    response = PredictResponse()
    response.model_spec.version.value = version
    values = np.array([scores], np.float32)
    order = np.argsort(-values, kind="stable").astype(np.int32)
    fill_tensor(response.outputs["order"], order)
    fill_tensor(response.outputs["scores"], np.take_along_axis(values, order, axis=1))
    fill_tensor(response.outputs["valid"], np.array([len(scores)], np.int32))
    return response


def test_padding_of_a_wider_batch_is_stripped():
    answer = ranked([1.0, 2.0, -3e38])
    answer.outputs["valid"].int_val[0] = 2
    ranking = ranking_of("shop", answer)
    assert [(item.index, item.score) for item in ranking.items] == [(1, 2), (0, 1)]


def test_the_experts_of_each_task_come_as_they_are_sent():
    """Of one task the gate chose for the list, of the other for each item."""
    answer = ranked([2.0, 1.0])
    for task, ids, weights in (
        ("click", [[1, 3]], [[0.75, 0.25]]),
        ("buy", [[[0, 2], [5, 4]]], [[[0.9, 0.1], [0.6, 0.4]]]),
    ):
        fill_tensor(answer.outputs[f"expert_ids_{task}"], np.array(ids, np.int32))
        fill_tensor(answer.outputs[f"expert_weights_{task}"], np.array(weights, np.float32))
    ranking = ranking_of("shop", answer)
    assert ranking.experts == ()
    assert {t: [e.id for e in of] for t, of in ranking.task_experts.items()} == {"click": [1, 3]}
    assert [[e.id for e in item.task_experts["buy"]] for item in ranking.items] == [[0, 2], [5, 4]]
    data = ranking_json(ranking, ITEMS[:2])
    assert data["task_experts"]["click"][0] == {"id": 1, "weight": 0.75}
    assert [e["id"] for e in data["items"][1]["task_experts"]["buy"]] == [5, 4]


class Recorder(grpc.GenericRpcHandler):
    """Keeps the requests and answers each with the same ranking."""

    def __init__(self) -> None:
        self.requests: list[Any] = []

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
            self.requests.append(PredictRequest.FromString(request))
            return ranked([0.0] * 8).SerializeToString()

        return grpc.unary_unary_rpc_method_handler(answer)


@pytest.mark.parametrize(
    ("pinned", "version", "label"),
    [({}, 0, ""), ({"version": 7}, 7, ""), ({"label": "canary"}, 0, "canary")],
)
def test_a_request_is_addressed_to_the_version_or_label(pinned, version, label):
    recorder = Recorder()
    server = grpc.server(ThreadPoolExecutor(1), handlers=[recorder])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with RankingClient(f"127.0.0.1:{port}", "shop", SHOP, **pinned) as client:
        client.rank(CONTEXT, ITEMS)
    server.stop(0)
    spec = recorder.requests[0].model_spec
    assert (spec.name, spec.version.value, spec.version_label) == ("shop", version, label)
    assert spec.HasField("version") == bool(version)


def test_version_and_label_exclude_each_other():
    with pytest.raises(UserError, match="a version or a label, not both"):
        RankingClient("127.0.0.1:9", "shop", SHOP, version=1, label="stable")


def test_a_list_beyond_the_limit_is_rejected_with_size_and_limit(monkeypatch):
    monkeypatch.setattr("tfr_moe.serving.client.client.MAX_MESSAGE_BYTES", 500)
    with (
        RankingClient("127.0.0.1:9", "shop", SHOP) as client,
        pytest.raises(UserError, match=r"list of 8 items takes [\d,]+ bytes; allowed are 500$"),
    ):
        client.rank(CONTEXT, ITEMS)


def test_an_answer_without_a_needed_output_is_an_error_with_names():
    answer = ranked([1.0])
    del answer.outputs["valid"]
    with pytest.raises(RequestError, match="no output 'valid'; it has: order, scores"):
        ranking_of("shop", answer)
