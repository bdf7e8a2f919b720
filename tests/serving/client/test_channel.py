"""The client's connection: retries, round robin, TLS, metadata, health, threads."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from tests.serving.conftest import CONTEXT, shop_items, until
from tests.serving.models import SHOP
from tfr_moe.errors import UserError
from tfr_moe.serving.client import RankingClient, RequestError
from tfr_moe.serving.client.channel import address_of, headers_of
from tfr_moe.serving.dev_server import DevServer

SECONDS = 20.0


class Relay(grpc.GenericRpcHandler):
    """Passes calls on to a server, but for the first ones, which it rejects with `failures`."""

    def __init__(self, target: str):
        self._channel = grpc.insecure_channel(target)
        self.failures: list[grpc.StatusCode] = []
        self.metadata: list[dict[str, Any]] = []

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        def pass_on(request: bytes, context: grpc.ServicerContext) -> bytes:
            self.metadata.append(dict(context.invocation_metadata()))
            if self.failures:
                context.abort(self.failures.pop(0), "not now")
            return self._channel.unary_unary(details.method)(request, timeout=SECONDS)

        return grpc.unary_unary_rpc_method_handler(pass_on)


@contextmanager
def relaying(relay: Relay, credentials: Any = None, port: int = 0) -> Iterator[str]:
    running = grpc.server(ThreadPoolExecutor(4), handlers=[relay])
    if credentials is None:
        port = running.add_insecure_port(f"127.0.0.1:{port}")
    else:
        port = running.add_secure_port(f"127.0.0.1:{port}", credentials)
    running.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        running.stop(0)


@pytest.fixture
def relay(server: DevServer) -> Relay:
    return Relay(server.target)


def test_unavailable_is_retried(relay: Relay):
    relay.failures = [grpc.StatusCode.UNAVAILABLE] * 3
    with relaying(relay) as target, RankingClient(target, "plain", SHOP, timeout=SECONDS) as client:
        assert len(client.rank(CONTEXT, shop_items(2)).items) == 2
    assert len(relay.metadata) == 4


def test_large_requests_are_retried_too(relay: Relay):
    relay.failures = [grpc.StatusCode.UNAVAILABLE]
    items = [{"price": 1.0, "brand": "b" * 1000} for _ in range(400)]
    with relaying(relay) as target, RankingClient(target, "plain", SHOP, timeout=SECONDS) as client:
        assert len(client.rank(CONTEXT, items).items) == 400


@pytest.mark.parametrize("code", [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL])
def test_nothing_else_is_retried(relay: Relay, code: grpc.StatusCode):
    relay.failures = [code, code]
    with (
        relaying(relay) as target,
        RankingClient(target, "plain", SHOP, timeout=SECONDS) as client,
        pytest.raises(RequestError) as caught,
    ):
        client.rank(CONTEXT, shop_items(2))
    assert caught.value.code == code
    assert len(relay.metadata) == 1


def test_the_client_reconnects_to_a_restarted_server(relay: Relay):
    with relaying(relay) as target:
        client = RankingClient(target, "plain", SHOP, timeout=SECONDS)
        client.rank(CONTEXT, shop_items(1))

    def reason() -> str:
        with pytest.raises(RequestError) as caught:
            client.rank(CONTEXT, shop_items(1))
        return str(caught.value)

    # A connection that the stopped server has not closed yet cancels its requests.
    until(lambda: reason().startswith("no server at"))
    with relaying(relay, port=int(target.rpartition(":")[2])):
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                assert len(client.rank(CONTEXT, shop_items(1)).items) == 1
                break
            except RequestError:
                assert time.monotonic() < deadline
    client.close()


def test_several_addresses_are_used_in_turn(server: DevServer):
    left, right = Relay(server.target), Relay(server.target)
    with (
        relaying(left) as one,
        relaying(right) as two,
        RankingClient(f"{one},{two}", "plain", SHOP, timeout=SECONDS) as client,
    ):
        client.rank(CONTEXT, shop_items(1))
        deadline = time.monotonic() + SECONDS
        while not (left.metadata and right.metadata):  # the second connection comes when it comes
            assert time.monotonic() < deadline
            client.rank(CONTEXT, shop_items(1))
        before = len(left.metadata), len(right.metadata)
        for _ in range(10):
            client.rank(CONTEXT, shop_items(1))
    assert (len(left.metadata) - before[0], len(right.metadata) - before[1]) == (5, 5)


def test_metadata_is_sent_with_every_request(relay: Relay):
    with (
        relaying(relay) as target,
        RankingClient(target, "plain", SHOP, metadata={"x-token": "secret"}) as client,
    ):
        client.status()
        client.predict(CONTEXT, shop_items(1))
    assert [sent["x-token"] for sent in relay.metadata] == ["secret", "secret"]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """Key and certificate of 127.0.0.1 that signs itself, of server and client alike."""
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "
        "-subj /CN=ranking.test -addext subjectAltName=IP:127.0.0.1"
    )
    try:
        subprocess.run(
            [*command.split(), "-keyout", str(key), "-out", str(certificate)],
            check=True,
            capture_output=True,
        )
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    return key.read_bytes(), certificate.read_bytes()


def test_mutual_tls_requires_a_certificate(relay: Relay, certificate: tuple[bytes, bytes]):
    key, proof = certificate
    of_server = grpc.ssl_server_credentials([certificate], proof, require_client_auth=True)
    proven = grpc.ssl_channel_credentials(proof, key, proof)
    unproven = grpc.ssl_channel_credentials(proof)
    with relaying(relay, of_server) as target:
        with RankingClient(target, "plain", SHOP, timeout=SECONDS, credentials=proven) as client:
            assert len(client.rank(CONTEXT, shop_items(2)).items) == 2
        with (
            RankingClient(target, "plain", SHOP, credentials=unproven) as client,
            pytest.raises(RequestError) as caught,
        ):
            client.rank(CONTEXT, shop_items(2))
    assert caught.value.code == grpc.StatusCode.UNAVAILABLE


def test_a_server_is_healthy_if_a_version_is_available(server: DevServer):
    with RankingClient(server.target, "plain", SHOP) as client:
        assert client.health()
    with RankingClient(server.target, "nope", SHOP) as client:
        assert not client.health()
    with RankingClient("127.0.0.1:9", "plain", SHOP) as client:
        assert not client.health()


@pytest.mark.parametrize(
    ("target", "address"),
    [
        ("localhost:8500", "localhost:8500"),
        ("[::1]:8500", "[::1]:8500"),
        ("10.0.0.1:1, 10.0.0.2:2", "ipv4:10.0.0.1:1,10.0.0.2:2"),
        ("dns:///ranking:8500", "dns:///ranking:8500"),
    ],
)
def test_targets_that_grpc_resolves(target: str, address: str):
    assert address_of(target) == address


@pytest.mark.parametrize(
    "target", ["localhost", "localhost:", ":8500", "1.1.1.1:1,b", "a:0", "a:65536", "http://a:8500"]
)
def test_targets_without_a_host_and_port_are_rejected(target: str):
    with pytest.raises(UserError, match="must be HOST:PORT"):
        address_of(target)


def test_several_names_are_rejected():
    with pytest.raises(UserError, match="several addresses must be IPv4, but not 'localhost'"):
        address_of("10.0.0.1:8500,localhost:8500")


def test_metadata_names_are_sent_in_lower_case():
    headers = headers_of({"Authorization": "Bearer x", "trace-bin": b"\xff"})
    assert headers == (("authorization", "Bearer x"), ("trace-bin", b"\xff"))


@pytest.mark.parametrize("metadata", [{"a b": "c"}, {"ä": "c"}, {"": "c"}, {"a": "ü"}, {"a": b"c"}])
def test_metadata_that_grpc_cannot_send_is_rejected(metadata: dict[str, Any]):
    with pytest.raises(UserError, match=r"^metadata '.*': a (name has|value must be)"):
        headers_of(metadata)


def test_asyncio_uses_the_client_in_threads(server: DevServer):
    async def ask() -> list[Any]:
        with RankingClient(server.target, "mixture", timeout=SECONDS) as client:
            calls = (asyncio.to_thread(client.rank, CONTEXT, shop_items(n)) for n in range(1, 9))
            return await asyncio.gather(*calls)

    answers = asyncio.run(ask())
    with RankingClient(server.target, "mixture", SHOP, timeout=SECONDS) as client:
        for count, answer in enumerate(answers, start=1):
            expected = client.rank(CONTEXT, shop_items(count))
            assert [item.index for item in answer.items] == [item.index for item in expected.items]
            weights, others = (
                {expert.id: expert.weight for expert in ranking.experts}
                for ranking in (answer, expected)
            )
            assert weights == pytest.approx(others, abs=1e-6)
