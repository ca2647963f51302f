"""Metrics and health over HTTPS: probes need no certificate, and slow or foreign connections cost others nothing."""

from __future__ import annotations

import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge

from pointsman.clock import SystemClock
from pointsman.daemon import http_server
from pointsman.daemon.monitoring import MonitoringServer
from pointsman.daemon.tls.server_certificates import ServerCertificates
from tests.kit.certificates import Authority
from tests.kit.faults.hostile import client_hello
from tests.kit.tls_peers import context, tls_config


@pytest.fixture
def certificates(authority: Authority) -> ServerCertificates:
    """Those of a daemon under mTLS."""
    config = tls_config(authority.issue("server"), mutual=True)
    return ServerCertificates(config, prefix="p", registry=CollectorRegistry(), clock=SystemClock())


@pytest.fixture
def server(certificates: ServerCertificates) -> Iterator[MonitoringServer]:
    registry = CollectorRegistry()
    Gauge("brokers", "Brokers.", registry=registry).set(3)
    serving = MonitoringServer(
        "127.0.0.1:0", registry=registry, health=lambda: (True, {}), tls=lambda: certificates.open_context
    )
    serving.start()
    yield serving
    serving.stop()


def get(server: MonitoringServer, path: str, tls: ssl.SSLContext | None) -> str:
    address = f"{'https' if tls else 'http'}://127.0.0.1:{server.port}{path}"
    with urllib.request.urlopen(address, timeout=30, context=tls) as answer:
        return str(answer.read(), "utf-8")


def test_a_probe_without_a_certificate_is_served(server: MonitoringServer, authority: Authority) -> None:
    assert "brokers 3.0" in get(server, "/metrics", context(authority.file))
    assert '"healthy": true' in get(server, "/healthz", context(authority.file))


def test_plain_http_and_strangers_are_closed(server: MonitoringServer, authority: Authority, tmp_path: Path) -> None:
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        get(server, "/healthz", None)
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        get(server, "/healthz", context(Authority(tmp_path, "other").file))
    assert get(server, "/healthz", context(authority.file))


def test_a_tls_client_of_a_plaintext_port_is_closed(authority: Authority) -> None:
    serving = MonitoringServer("127.0.0.1:0", registry=CollectorRegistry(), health=lambda: (True, {}))
    serving.start()
    try:
        with pytest.raises(urllib.error.URLError):
            get(serving, "/healthz", context(authority.file))
        assert get(serving, "/healthz", None)
    finally:
        serving.stop()


def test_new_files_are_used_by_the_next_connection(
    server: MonitoringServer, authority: Authority, certificates: ServerCertificates
) -> None:
    before = ssl.get_server_certificate(("127.0.0.1", server.port), timeout=30)
    authority.issue("server")
    certificates.poll()
    assert ssl.get_server_certificate(("127.0.0.1", server.port), timeout=30) != before


def test_unfinished_handshakes_are_closed_and_others_are_served(
    server: MonitoringServer, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "WHOLE_REQUEST_SECONDS", 0.2)
    hello = client_hello()
    with ExitStack() as open_:
        slow = [
            open_.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            for _ in range(2 * http_server.MAX_CONNECTIONS)
        ]
        for count, connection in enumerate(slow):
            try:
                connection.send(hello[: count % len(hello)])
            except ConnectionError:
                continue  # closed for a newer one
        assert get(server, "/healthz", context(authority.file))
        for connection in slow:
            connection.settimeout(60)
            try:
                while connection.recv(1_000):
                    pass
            except ConnectionError:
                continue
