"""The client against the development server: answers, and one clear line for each user error."""

from __future__ import annotations

import math
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest

from tests.serving.conftest import CONTEXT, elwc, shop_items
from tests.serving.models import SHOP
from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema
from tfr_moe.serving.client import RankingClient, RequestError
from tfr_moe.serving.dev_server import DevServer

SECONDS = 20.0


@pytest.fixture(scope="module")
def target(models: Path) -> Iterator[str]:
    with DevServer(models, port=0) as running:
        yield running.target


@pytest.fixture
def client(target: str) -> Iterator[RankingClient]:
    with RankingClient(target, "mixture", SHOP, timeout=SECONDS) as opened:
        yield opened


def test_rank_sorts_the_scores_of_predict(client: RankingClient):
    items = shop_items(6)
    scores = client.predict(CONTEXT, items)
    answer = client.rank(CONTEXT, items)
    assert (answer.model, answer.version) == ("mixture", 1)
    assert [item.index for item in answer.items] == np.argsort(-np.array(scores)).tolist()
    np.testing.assert_allclose(
        [item.score for item in answer.items], sorted(scores, reverse=True), atol=1e-6
    )


def test_the_experts_of_a_list_come_heaviest_first(client: RankingClient, signature):
    answer = client.rank(CONTEXT, shop_items(3))
    raw = signature("mixture", "rank")([elwc(shop_items(3))])
    assert {e.id for e in answer.experts} == set(raw["expert_ids"][0].tolist())
    assert sum(e.weight for e in answer.experts) == pytest.approx(1.0, abs=1e-6)
    assert answer.experts[0].weight >= answer.experts[1].weight
    assert all(item.experts == () for item in answer.items)


def test_an_item_level_gate_gives_each_item_its_experts(target: str):
    with RankingClient(target, "itemwise", SHOP, timeout=SECONDS) as client:
        answer = client.rank(CONTEXT, shop_items(4))
        assert answer.experts == ()
        for item in answer.items:
            alone = client.rank(CONTEXT, [shop_items(4)[item.index]]).items[0]
            assert [e.id for e in item.experts] == [e.id for e in alone.experts]


def test_a_model_without_experts_has_none(target: str):
    with RankingClient(target, "plain", SHOP, timeout=SECONDS) as client:
        answer = client.rank(CONTEXT, shop_items(2))
    assert answer.experts == ()
    assert [item.experts for item in answer.items] == [(), ()]


@pytest.mark.parametrize("count", [0, 1])
def test_short_lists_are_ranked_too(client: RankingClient, count: int):
    assert [item.index for item in client.rank(CONTEXT, shop_items(count)).items] == [0][:count]
    assert len(client.predict(CONTEXT, shop_items(count))) == count


def test_the_exported_schema_is_all_a_client_needs(target: str, models: Path):
    schema = FeatureSchema.load(models / "mixture" / "1" / "assets.extra" / "schema.json")
    with RankingClient(target, "mixture", schema, timeout=SECONDS) as client:
        assert len(client.rank({**CONTEXT, "session": 7}, shop_items(2)).items) == 2


def test_a_client_without_a_schema_requests_it_from_the_server(target: str, models: Path):
    exported = FeatureSchema.load(models / "mixture" / "1" / "assets.extra" / "schema.json")
    with RankingClient(target, "mixture", timeout=SECONDS) as client:
        assert client.schema == exported
        assert len(client.rank(CONTEXT, shop_items(2)).items) == 2
        with pytest.raises(UserError, match="unknown feature 'color'"):
            client.rank(CONTEXT, [{"price": 1, "color": "red"}])


def test_status_has_the_served_versions(client: RankingClient):
    (status,) = client.status()
    assert status == (1, "AVAILABLE", "")


@pytest.mark.parametrize(
    ("context", "items", "message"),
    [
        (
            CONTEXT,
            [{"price": 1}, {"price": "cheap"}],
            "items[1]: feature 'price': expected a number",
        ),
        (CONTEXT, [{"brand": "acme"}], "items[0]: feature 'price': a value is required"),
        (CONTEXT, [{"price": 1, "color": "red"}], "items[0]: unknown feature 'color'; allowed: "),
        ({"age": [1]}, [{"price": 1}], "context: feature 'age': expected a number"),
        (CONTEXT, None, "items: must be a list of mappings, got NoneType"),
        ({"price": 1}, [], "context: unknown feature 'price'; allowed: session, top, sub, age"),
    ],
)
def test_an_invalid_request_is_rejected_before_it_is_sent(context, items, message):
    with (
        RankingClient("127.0.0.1:9", "mixture", SHOP) as nowhere,
        pytest.raises(UserError) as caught,
    ):
        nowhere.rank(context, items)
    assert message in str(caught.value)


def test_a_closed_port_is_an_error_at_once():
    start = time.monotonic()
    with (
        RankingClient("127.0.0.1:9", "mixture", SHOP) as nowhere,
        pytest.raises(RequestError, match=r"^no server at 127\.0\.0\.1:9 ") as caught,
    ):
        nowhere.rank(CONTEXT, shop_items(1))
    assert caught.value.code == grpc.StatusCode.UNAVAILABLE
    assert "\n" not in str(caught.value)
    assert time.monotonic() - start < 5


def test_a_silent_server_is_a_timeout():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = f"127.0.0.1:{silent.getsockname()[1]}"
        with (
            RankingClient(target, "mixture", SHOP, timeout=0.5) as nobody,
            pytest.raises(RequestError, match=r"no answer from .* within 0\.5 s"),
        ):
            nobody.rank(CONTEXT, shop_items(1))


def test_the_timeout_of_a_request_is_the_one_in_the_message():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = f"127.0.0.1:{silent.getsockname()[1]}"
        with (
            RankingClient(target, "mixture", SHOP) as nobody,
            pytest.raises(RequestError, match=r"within 0\.25 s"),
        ):
            nobody.rank(CONTEXT, shop_items(1), timeout=0.25)


@pytest.mark.parametrize("timeout", [math.inf, 1e300])
def test_an_infinite_timeout_is_no_deadline(target: str, timeout: float):
    with RankingClient(target, "mixture", SHOP, timeout=timeout) as client:
        assert len(client.rank(CONTEXT, shop_items(2)).items) == 2
        assert len(client.predict(CONTEXT, shop_items(2), timeout=math.inf)) == 2
        assert client.health()


@pytest.mark.parametrize("timeout", [0, -1.0, math.nan, "5", True])
def test_an_invalid_timeout_is_rejected_by_name(client: RankingClient, timeout):
    message = re.escape(
        f"timeout must be a number of seconds above 0. Received: timeout={timeout!r}"
    )
    with pytest.raises(UserError, match=message):
        RankingClient("127.0.0.1:9", "mixture", SHOP, timeout=timeout)
    with pytest.raises(UserError, match=message):
        client.rank(CONTEXT, [], timeout=timeout)


def test_a_missing_model_or_version_is_named(target: str):
    with RankingClient(target, "nope", SHOP) as client:
        with pytest.raises(RequestError, match="model 'nope' is not served at"):
            client.rank(CONTEXT, shop_items(1))
        with pytest.raises(RequestError, match="model 'nope' is not served at"):
            client.status()
    with (
        RankingClient(target, "plain", SHOP, version=9) as client,
        pytest.raises(RequestError, match="model 'plain' version 9 is not served"),
    ):
        client.rank(CONTEXT, shop_items(1))


def test_a_rejection_by_the_server_is_one_line(target: str):
    """The caller's schema has one packed number an item, the model's has two."""
    narrow = FeatureSchema.model_validate(
        {
            "list_id": "session",
            "labels": ["bought"],
            "features": [{"name": "stars", "scope": "example", "kind": "numeric"}],
        }
    )
    with (
        RankingClient(target, "plain", narrow, timeout=SECONDS) as client,
        pytest.raises(
            RequestError, match=r"rejected the request to model 'plain'.*example_numeric"
        ) as e,
    ):
        client.rank({}, [{"stars": 1}])
    assert e.value.code == grpc.StatusCode.INVALID_ARGUMENT
    assert "\n" not in str(e.value)


def test_a_target_without_a_port_is_rejected():
    with pytest.raises(UserError, match="'localhost': must be HOST:PORT"):
        RankingClient("localhost", "shop", SHOP)
