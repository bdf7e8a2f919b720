"""One export of each small model, shared by the tests of this folder."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from tests.records import encode_list, typed_values
from tests.serving.models import BRANDS, SHOP, mixture, scorer
from tfr_moe.serving.client import request as client_request
from tfr_moe.serving.dev_server import DevServer
from tfr_moe.serving.export import export_model

SECONDS = 20.0

CONTEXT = {"top": "food", "sub": "bread", "age": 31}


def shop_items(count: int) -> list[dict[str, Any]]:
    return [
        {
            "price": 1.5 * i + 1,
            "stars": i % 5,
            "brand": BRANDS[i % 3],
            "tags": ["new", "sale"][: i % 3],
        }
        for i in range(count)
    ]


def elwc(items: list[dict[str, Any]], context: Mapping[str, Any] = CONTEXT) -> bytes:
    examples = [typed_values(SHOP, "example", item) for item in items]
    return encode_list(SHOP, "q", typed_values(SHOP, "context", context), examples)


def publish(source: Path, folder: Path) -> None:
    """Copies a version as an export does: under a hidden name first."""
    hidden = folder.parent / f".{folder.name}"
    shutil.copytree(source, hidden)
    hidden.rename(folder)


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)


WARMUP = [elwc(shop_items(count)) for count in (3, 1, 7)]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `plain`, `mixture` (list-level gate) and `itemwise` (item-level gate)."""
    root = tmp_path_factory.mktemp("models")
    export_model(scorer(), SHOP, root / "plain", warmup=WARMUP, details={"data": "shop"})
    for name, item_level in (("mixture", False), ("itemwise", True)):
        model, explanation = mixture(item_level)
        export_model(model, SHOP, root / name, explanation=explanation, warmup=WARMUP)
    return root


@pytest.fixture(scope="session")
def signature(models: Path) -> Callable[[str, str], Callable[[list[bytes]], dict[str, Any]]]:
    """Gives a signature of an exported model as a function of serialized lists."""
    from tfr_moe._compat import tf

    loaded = {p.name: tf.saved_model.load(str(p / "1")) for p in models.iterdir()}

    def get(model: str, name: str) -> Callable[[list[bytes]], dict[str, Any]]:
        function = loaded[model].signatures[name]

        def call(lists: list[bytes]) -> dict[str, Any]:
            outputs = function(inputs=tf.constant(lists, tf.string, shape=[len(lists)]))
            return {key: value.numpy() for key, value in outputs.items()}

        return call

    return get


@pytest.fixture(scope="session")
def server(models: Path) -> Iterator[DevServer]:
    """A server of `models`."""
    with DevServer(models, port=0) as running:
        yield running


@pytest.fixture(scope="session")
def channel(server: DevServer) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.target) as opened:
        yield opened


@pytest.fixture(scope="session")
def stub(channel: grpc.Channel) -> Any:
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


def rejected(call: Callable[..., Any], request: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call(request, timeout=SECONDS)
    return caught.value.code(), caught.value.details()


def predict_request(model: str, signature: str, lists: list[bytes]) -> Any:
    """A request as a message of tensorflow-serving-api, which its stubs take."""
    request = client_request.predict_request(model, signature, lists)
    return predict_pb2.PredictRequest.FromString(request.SerializeToString())


def plain_request(**changes: Any) -> Any:
    request = predict_request("plain", "", [elwc(shop_items(3)), elwc(shop_items(5))])
    for name, value in changes.items():
        if name == "version":
            request.model_spec.version.value = value
        else:
            setattr(request.model_spec, name, value)
    return request
