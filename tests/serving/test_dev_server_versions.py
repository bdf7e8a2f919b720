"""Versions that come and go while the development server runs."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import pytest
from tensorflow_serving.apis import (
    prediction_service_pb2_grpc,
)

from tests.serving.conftest import (
    CONTEXT,
    SECONDS,
    publish,
    shop_items,
    until,
)
from tests.serving.models import SHOP
from tfr_moe.errors import UserError
from tfr_moe.serving.client import RankingClient, RequestError
from tfr_moe.serving.dev_server import DevServer
from tfr_moe.serving.export.export import write_warmup

pytestmark = pytest.mark.smoke

Stub = prediction_service_pb2_grpc.PredictionServiceStub
PREDICT = "/tensorflow.serving.PredictionService/Predict"


def test_versions_change_under_load_without_a_failed_request(models: Path, tmp_path: Path):
    shop = tmp_path / "shop"
    publish(models / "mixture" / "1", shop / "1")
    lines: list[str] = []
    versions: list[int] = []
    stop = threading.Event()
    with DevServer(tmp_path, port=0, poll_seconds=0.05, notify=lines.append) as running:
        client = RankingClient(running.target, "shop", SHOP, timeout=SECONDS)

        def rank() -> None:
            while not stop.is_set():
                versions.append(client.rank(CONTEXT, shop_items(3)).version)

        thread = threading.Thread(target=rank)
        thread.start()
        try:
            until(lambda: 1 in versions)
            publish(models / "plain" / "1", shop / "12")
            until(lambda: versions[-1] == 12)
            with RankingClient(running.target, "shop", SHOP, version=1) as old:
                assert old.rank(CONTEXT, shop_items(3)).experts
            shutil.rmtree(shop / "1")
            until(lambda: "unloaded shop version 1" in lines)
            count = len(versions)
            until(lambda: len(versions) > count + 5)
        finally:
            stop.set()
            thread.join()
        assert versions == sorted(versions)
        assert [(s.version, s.state) for s in client.status()] == [(12, "AVAILABLE"), (1, "END")]
        client.close()
    assert lines == ["serving shop version 1", "serving shop version 12", "unloaded shop version 1"]


def test_a_removed_version_answers_until_another_is_loaded(models: Path, tmp_path: Path):
    """Versions may be published and removed faster than they load."""
    shop = tmp_path / "shop"
    publish(models / "plain" / "1", shop / "1")
    lines: list[str] = []
    with (
        DevServer(tmp_path, port=0, poll_seconds=0.05, notify=lines.append) as running,
        RankingClient(running.target, "shop", SHOP, timeout=SECONDS) as client,
    ):
        (shop / "2").mkdir()  # cannot be loaded
        until(lambda: lines[-1].startswith("could not load shop version 2"))
        shutil.rmtree(shop / "1")
        time.sleep(0.3)
        assert client.rank(CONTEXT, shop_items(2)).version == 1
        publish(models / "plain" / "1", shop / "3")
        until(lambda: lines[-1] == "unloaded shop version 1")
        assert client.rank(CONTEXT, shop_items(2)).version == 3


def test_a_model_that_is_removed_and_put_back_is_served_again(models: Path, tmp_path: Path):
    publish(models / "plain" / "1", tmp_path / "shop" / "1")
    publish(models / "plain" / "1", tmp_path / "other" / "1")
    with (
        DevServer(tmp_path, port=0, poll_seconds=0.05) as running,
        RankingClient(running.target, "shop", SHOP, timeout=SECONDS) as client,
        RankingClient(running.target, "other", SHOP, timeout=SECONDS) as other,
    ):

        def state() -> str:
            return client.status()[0].state

        for _ in range(2):
            assert client.rank(CONTEXT, shop_items(2)).version == 1
            shutil.rmtree(tmp_path / "shop")
            until(lambda: state() == "END")
            with pytest.raises(RequestError, match=r"Latest\(shop\)"):
                client.rank(CONTEXT, shop_items(2))
            assert other.rank(CONTEXT, shop_items(2)).version == 1
            publish(models / "plain" / "1", tmp_path / "shop" / "1")
            until(lambda: state() == "AVAILABLE")


def test_a_broken_version_leaves_the_good_one_serving(models: Path, tmp_path: Path):
    shop = tmp_path / "shop"
    publish(models / "plain" / "1", shop / "1")
    (shop / "2").mkdir()
    shutil.copytree(models / "plain" / "1", shop / "3")
    shutil.rmtree(shop / "3" / "variables")
    lines: list[str] = []
    with (
        DevServer(tmp_path, port=0, poll_seconds=0.05, notify=lines.append) as running,
        RankingClient(running.target, "shop", SHOP, timeout=SECONDS) as client,
    ):
        assert client.rank(CONTEXT, shop_items(2)).version == 1
        states = client.status()
        # As if its copy had not been complete.
        shutil.copytree(models / "plain" / "1" / "variables", shop / "3" / "variables")
        until(lambda: client.status()[0].state == "AVAILABLE")
        assert client.rank(CONTEXT, shop_items(2)).version == 3
    assert [(s.version, s.state) for s in states] == [(3, "END"), (2, "END"), (1, "AVAILABLE")]
    assert states[0].error and states[1].error
    assert [line.split(":")[0] for line in lines[:2]] == [
        "could not load shop version 3",
        "could not load shop version 2",
    ]


def test_numbers_that_are_no_versions_are_ignored_with_a_log_line(
    models: Path, tmp_path: Path, caplog
):
    largest = 2**63 - 1
    publish(models / "plain" / "1", tmp_path / "shop" / str(largest))
    for other in (str(largest + 1), "01"):
        (tmp_path / "shop" / other).mkdir()
    with (
        DevServer(tmp_path, port=0) as running,
        RankingClient(running.target, "shop", SHOP, timeout=SECONDS) as client,
    ):
        assert client.rank(CONTEXT, shop_items(2)).version == largest
        assert [s.version for s in client.status()] == [largest]
    for other in (str(largest + 1), "01"):
        assert f"{other}: ignored; a version must be below 2^63, without lead" in caplog.text


def test_a_version_that_fails_its_warm_up_is_not_served(models: Path, tmp_path: Path):
    shutil.copytree(models / "plain" / "1", tmp_path / "shop" / "1")
    extra = tmp_path / "shop" / "1" / "assets.extra" / "tf_serving_warmup_requests"
    write_warmup(extra, "shop", [b"garbage"])
    with pytest.raises(UserError, match="no version could be loaded"):
        DevServer(tmp_path, port=0)
