"""Reloads of the local server's configuration: models, versions and labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from tensorflow_serving.apis import model_management_pb2, model_service_pb2_grpc

from tests.serving.conftest import CONTEXT, SECONDS, asking, publish, refused, shop_items
from tests.serving.models import SHOP
from tfr_moe.errors import UserError
from tfr_moe.serving.client import RankingClient
from tfr_moe.serving.server import RankingServer

pytestmark = pytest.mark.smoke


def reload_request(*configs: dict[str, Any]) -> Any:
    request = model_management_pb2.ReloadConfigRequest()
    request.config.model_config_list.SetInParent()
    for config in configs:
        entry = request.config.model_config_list.config.add()
        entry.name = config["name"]
        entry.base_path = str(config["base_path"])
        entry.model_platform = config.get("model_platform", "tensorflow")
        entry.version_labels.update(config.get("labels", {}))
        if "versions" in config:
            entry.model_version_policy.specific.versions.extend(config["versions"])
    return request


@pytest.fixture(scope="module")
def two_versions(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`shop` in the versions 1 (mixture) and 2 (plain)."""
    root = tmp_path_factory.mktemp("two")
    publish(models / "mixture" / "1", root / "shop" / "1")
    publish(models / "plain" / "1", root / "shop" / "2")
    return root


def test_a_reload_changes_models_versions_and_labels(models: Path, two_versions: Path):
    shop = two_versions / "shop"
    with (
        RankingServer(two_versions, port=0, poll_seconds=0.05) as running,
        grpc.insecure_channel(running.target) as opened,
    ):
        service = model_service_pb2_grpc.ModelServiceStub(opened)
        labels = {"stable": 1, "canary": 2}
        both = {"name": "shop", "base_path": shop, "versions": [1, 2], "labels": labels}
        other = {"name": "other", "base_path": models / "itemwise"}
        answer = service.HandleReloadConfigRequest(reload_request(both, other), timeout=60)
        assert answer.status.error_code == 0
        for label, version in labels.items():
            with RankingClient(running.target, "shop", SHOP, label=label) as client:
                assert client.rank(CONTEXT, shop_items(2), timeout=SECONDS).version == version
        with RankingClient(running.target, "other", SHOP) as client:
            assert client.rank(CONTEXT, shop_items(2), timeout=SECONDS).items[0].experts

        # A label for what is not served is refused, and all stays as it was.
        wrong = {**both, "labels": {"stable": 9}}
        code, message = refused(service.HandleReloadConfigRequest, reload_request(wrong))
        assert code == grpc.StatusCode.FAILED_PRECONDITION
        assert "not currently available" in message
        with RankingClient(running.target, "shop", SHOP, label="canary") as client:
            assert client.rank(CONTEXT, shop_items(2), timeout=SECONDS).version == 2

        # Back to one version: the newest stays, the other model goes.
        service.HandleReloadConfigRequest(reload_request({"name": "shop", "base_path": shop}))
        with RankingClient(running.target, "shop", SHOP, timeout=SECONDS) as client:
            assert [(s.version, s.state) for s in client.status()] == [(2, "AVAILABLE"), (1, "END")]
        with (
            RankingClient(running.target, "other", SHOP) as client,
            pytest.raises(UserError, match="'other' is not served"),
        ):
            client.rank(CONTEXT, shop_items(2))
        # And a version that was dropped can come back.
        service.HandleReloadConfigRequest(reload_request({**both, "labels": {}}), timeout=60)
        with RankingClient(running.target, "shop", SHOP, version=1) as client:
            assert client.rank(CONTEXT, shop_items(2), timeout=SECONDS).version == 1


@pytest.mark.parametrize(
    ("config", "code", "message"),
    [
        ({"base_path": "shop"}, "INVALID_ARGUMENT", "absolute path"),
        ({"base_path": "/none/such"}, "NOT_FOUND", "Could not find base path /none/such"),
        ({"model_platform": "caffe"}, "INVALID_ARGUMENT", "model_platform 'caffe'"),
        ({"versions": [77]}, "UNKNOWN", "no version of model plain became available"),
    ],
)
def test_a_reload_that_can_not_be_is_refused(channel, stub, models, config, code, message):
    service = model_service_pb2_grpc.ModelServiceStub(channel)
    given = {"name": "plain", "base_path": models / "plain", **config}
    found, details = refused(service.HandleReloadConfigRequest, reload_request(given))
    assert (found.name, message in details) == (code, True), details
    assert stub.Predict(asking(), timeout=SECONDS).model_spec.version.value == 1


def test_a_reload_without_a_list_of_models_is_refused(channel):
    service = model_service_pb2_grpc.ModelServiceStub(channel)
    request = model_management_pb2.ReloadConfigRequest()
    assert refused(service.HandleReloadConfigRequest, request)[0].name == "INVALID_ARGUMENT"
    twice = {"name": "plain", "base_path": "/tmp"}
    code, message = refused(service.HandleReloadConfigRequest, reload_request(twice, twice))
    assert (code.name, "twice" in message) == ("INVALID_ARGUMENT", True)
