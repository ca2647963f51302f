"""Metrics and health over HTTP, on a real socket."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Gauge

from pointsman.service.monitoring import CannotListen, MonitoringServer

HEALTH: dict[str, object] = {"brokers": 3}


class Health:
    healthy = True

    def __call__(self) -> tuple[bool, dict[str, object]]:
        return self.healthy, HEALTH


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


def test_any_other_path_says_what_there_is(server: MonitoringServer) -> None:
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


def test_a_port_that_is_taken_is_an_error_at_once(server: MonitoringServer, health: Health) -> None:
    with pytest.raises(CannotListen, match=r"cannot listen on 127\.0\.0\.1:"):
        MonitoringServer(f"127.0.0.1:{server.port}", registry=CollectorRegistry(), health=health)


def test_it_listens_on_ipv6_too(health: Health) -> None:
    serving = MonitoringServer("[::1]:0", registry=CollectorRegistry(), health=health)
    serving.start()
    with urllib.request.urlopen(f"http://[::1]:{serving.port}/healthz", timeout=5) as answer:
        assert answer.status == 200
    serving.stop()


def test_a_server_that_never_started_stops_at_once(health: Health) -> None:
    MonitoringServer("127.0.0.1:0", registry=CollectorRegistry(), health=health).stop()
