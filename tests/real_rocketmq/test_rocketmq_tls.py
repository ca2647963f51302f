"""RocketMQ's brokers and clients with ``tls.enable=true``, under mTLS, through rotations of the certificate."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from deploy.dev import make_certificates
from deploy.rocketmq.processes import RocketMQ, failed, got, sent
from tests.kit.waiting import until
from tests.real_rocketmq.conftest import Jars
from tests.real_rocketmq.name_server import Pointsman

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(240)]


def test_a_broker_and_clients_of_both_versions_are_served_over_mtls(
    jars: Jars, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "certificates"
    make_certificates.main([str(folder)])
    properties = tmp_path / "tls.properties"
    properties.write_text(
        "tls.test.mode.enable=false\n"
        f"tls.server.certPath={folder}/server.pem\ntls.server.keyPath={folder}/server.key\n"
        f"tls.client.certPath={folder}/broker-a.pem\ntls.client.keyPath={folder}/broker-a.key\n"
        f"tls.client.authServer=true\ntls.client.trustCertPath={folder}/ca.pem\n"
    )
    tls = {"certificate": "server.pem", "key": "server.key", "client_ca": "ca.pem"}
    settings = {f"tls.{name}": str(folder / file) for name, file in tls.items()}
    with ExitStack() as stack:
        name_server = Pointsman(tmp_path / "ns", settings=settings)
        stack.callback(name_server.stop)
        with monkeypatch.context() as java:
            java.setenv("JAVA_TOOL_OPTIONS", f"-Dtls.enable=true -Dtls.config.file={properties}")
            v5, v4 = (RocketMQ(lib, tmp_path / lib.name, name_server.addr) for lib in (jars.v5, jars.v4))
            v5.topics_on_disk("a", 0, ["Seeded"])
            stack.callback(v5.broker("a").end)
            until(lambda: name_server.events("a"), what="the broker's registration")
            producers = [each.producer("Seeded", 40, millis=250) for each in (v5, v4)]
            consumers = [each.consumer("Seeded") for each in (v5, v4)]
        for client in (*producers, *consumers):
            stack.callback(client.end)
        for rotation in range(3):
            until(lambda: all(len(sent(each)) > 10 * rotation for each in producers), what="messages sent")  # noqa: B023
            make_certificates.main([str(folder)])
        everything = {f"m{i}" for i in range(40)}
        until(lambda: [sent(each) for each in producers] == [everything] * 2, what="all messages sent")
        until(lambda: [len(got(each)) >= 80 for each in consumers] == [True] * 2, what="all messages read")
        # The first try of a JVM that just started, with its handshakes, may take longer than the 3 s of its timeout.
        late = [line for each in producers for line in failed(each) if not line.startswith("failed m0 ")]
        assert late == []

        plain = RocketMQ(jars.v5, tmp_path / "plain", name_server.addr)
        stranger = plain.producer("Seeded", 1)
        stack.callback(stranger.end)
        until(lambda: failed(stranger), what="a client without TLS to fail")
        cause = 'pointsman_namesrv_remoting_connections_closed_total{cause="plaintext"}'
        assert name_server.metric(cause) >= 1
        assert [event for event, _ in name_server.events("a")] == ["REGISTERED"]
        assert name_server.errors() == []
