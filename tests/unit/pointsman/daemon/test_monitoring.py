"""Metrics and health over HTTP, on a real socket."""

from __future__ import annotations

import contextlib
import http.client
import json
import selectors
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Gauge

from pointsman.daemon import http_server
from pointsman.daemon.http_server import CannotListen
from pointsman.daemon.monitoring import MonitoringServer
from tests.kit.waiting import until

HEALTH: dict[str, object] = {"brokers": 3}


class Health:
    healthy = True

    def __init__(self) -> None:
        self.waiting = 0
        self._may_answer = threading.Event()
        self._may_answer.set()

    def __call__(self) -> tuple[bool, dict[str, object]]:
        self.waiting += 1
        self._may_answer.wait(10)
        return self.healthy, HEALTH

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        self.waiting = 0
        self._may_answer.clear()
        yield
        self._may_answer.set()


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
def server(health: Health) -> Iterator[MonitoringServer]:
    registry = CollectorRegistry()
    Gauge("brokers", "Brokers.", registry=registry).set(3)
    serving = MonitoringServer("127.0.0.1:0", registry=registry, health=health)
    serving.start()
    yield serving
    serving.stop()


def get(server: MonitoringServer, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=5) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_metrics_are_those_of_the_registry(server: MonitoringServer) -> None:
    status, body = get(server, "/metrics")

    assert status == 200
    assert "brokers 3.0" in body


def test_health_is_200_while_healthy_and_503_while_not(server: MonitoringServer, health: Health) -> None:
    assert get(server, "/healthz") == (200, json.dumps({"healthy": True, "brokers": 3}) + "\n")

    health.healthy = False
    status, body = get(server, "/healthz")
    assert (status, json.loads(body)["healthy"]) == (503, False)


@pytest.mark.parametrize("path", ["/metrics", "/healthz"])
def test_head_has_the_headers_of_get_and_no_body(server: MonitoringServer, path: str) -> None:
    with request(server, "GET", path) as full, request(server, "HEAD", path) as head:
        assert (head.status, head.read()) == (200, b"")
        assert head.headers["Content-Length"] == str(len(full.read()))
        assert head.headers["Content-Type"] == full.headers["Content-Type"]


@pytest.mark.parametrize("path", ["/metrics", "/healthz"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "TRACE", "OPTIONS"])
def test_other_methods_are_refused_with_those_allowed(server: MonitoringServer, method: str, path: str) -> None:
    with request(server, method, path) as answer:
        assert (answer.status, answer.headers["Allow"], answer.read()) == (405, "GET, HEAD", b"use GET or HEAD\n")


@pytest.mark.parametrize("path", ["/metrics", "/", "/" + "x" * 70_000])
def test_the_server_header_has_no_versions(server: MonitoringServer, path: str) -> None:
    with request(server, "GET", path) as answer:
        assert answer.headers.get_all("Server") == ["pointsman"]


@contextlib.contextmanager
def request(server: MonitoringServer, method: str, path: str) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    try:
        connection.request(method, path)
        yield connection.getresponse()
    finally:
        connection.close()


def test_any_other_path_lists_the_existing_ones(server: MonitoringServer) -> None:
    status, body = get(server, "/")

    assert status == 404
    assert "/metrics" in body


def test_a_stopped_server_frees_its_port(health: Health) -> None:
    serving = MonitoringServer("127.0.0.1:0", registry=CollectorRegistry(), health=health)
    port = serving.port
    serving.start()
    serving.stop()

    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", port))


def test_a_port_in_use_fails_immediately(server: MonitoringServer, health: Health) -> None:
    with pytest.raises(CannotListen, match=r"cannot listen on 127\.0\.0\.1:"):
        MonitoringServer(f"127.0.0.1:{server.port}", registry=CollectorRegistry(), health=health)


def test_it_listens_on_ipv6_too(health: Health) -> None:
    serving = MonitoringServer("[::1]:0", registry=CollectorRegistry(), health=health)
    serving.start()
    with urllib.request.urlopen(f"http://[::1]:{serving.port}/healthz", timeout=5) as answer:
        assert answer.status == 200
    serving.stop()


def test_it_sleeps_while_no_client_is_connected(health: Health, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "POLL_SECONDS", 0.01)
    waits: list[float | None] = []

    class CountingSelector(selectors.DefaultSelector):
        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            waits.append(timeout)
            return super().select(timeout)

    monkeypatch.setattr(selectors, "DefaultSelector", CountingSelector)
    serving = MonitoringServer("127.0.0.1:0", registry=CollectorRegistry(), health=health)
    serving.start()
    until(lambda: waits)
    assert waits == [None]

    with socket.create_connection(("127.0.0.1", serving.port), timeout=10) as idle:
        until(lambda: len(waits) > 2)
        assert set(waits[1:]) == {0.01}
        idle.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert idle.recv(100)
    until(lambda: waits[-1] is None)
    serving.stop()
    assert not serving._thread.is_alive()


def test_a_server_that_never_started_stops_immediately(health: Health) -> None:
    MonitoringServer("127.0.0.1:0", registry=CollectorRegistry(), health=health).stop()


def test_a_connection_that_trickles_is_hung_up_on(server: MonitoringServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "WHOLE_REQUEST_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as slow:
        slow.sendall(b"GET /metrics HTTP/1.1\r\n")  # and no end of its headers
        assert slow.recv(1) == b""


def test_silent_connections_do_not_block_requests(server: MonitoringServer) -> None:
    with contextlib.ExitStack() as connections:
        silent = [
            connections.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=10))
            for _ in range(http_server.MAX_CONNECTIONS + 16)
        ]
        assert get(server, "/healthz")[0] == 200
        assert [connection.recv(1) for connection in silent[:17]] == [b""] * 17
        silent[-1].sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert silent[-1].recv(100).startswith(b"HTTP/1.0 200")


def test_while_every_connection_is_being_answered_one_more_is_closed(
    server: MonitoringServer, health: Health, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 2)
    with contextlib.ExitStack() as connections:
        asked = [
            connections.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=10))
            for _ in range(2)
        ]
        with health.held():
            for connection in asked:
                connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            until(lambda: health.waiting == 2)
            late = connections.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=10))
            assert late.recv(1) == b""
        assert [connection.recv(12) for connection in asked] == [b"HTTP/1.0 200"] * 2
