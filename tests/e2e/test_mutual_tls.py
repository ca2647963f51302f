"""Name server, agent and Redis as processes, producer, consumer, pointsmanctl: over mutual TLS, through a rotation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pointsman.daemon.tls.tls_settings import TlsConfig
from pointsman_agent.config import (
    AgentConfig,
    BrokerSection,
    GroupsSection,
    HeartbeatSection,
    MonitoringSection,
    NameServersSection,
    ProbeSection,
    RpcSection,
    TopicRow,
    TopicsSection,
)
from pointsman_client import (
    ConsumeFrom,
    ConsumeResult,
    Credentials,
    Message,
    NameServersUnavailableError,
    Producer,
    PushConsumer,
    ReceivedMessage,
)
from pointsman_client.redis_streams import RedisStreamsTransport
from tests.kit.agent.process import AgentProcess, agent_process
from tests.kit.broker.redis.process import RedisProcess, redis_process
from tests.kit.certificates import Authority, Files
from tests.kit.ctl.process import ctl_process
from tests.kit.name_server.process import RealNameServer, real_name_server
from tests.kit.tls_peers import tls_config
from tests.kit.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.redis, pytest.mark.timeout(300)]

PATIENCE_SECONDS = 90.0


@dataclass
class Secured:
    """One of each, all with certificates of one authority."""

    authority: Authority
    server: RealNameServer
    agent: AgentProcess

    @property
    def client(self) -> Files:
        return Files(self.authority.file, self.authority.folder / "client.pem", self.authority.folder / "client.key")

    def rotate(self) -> None:
        """Replace the certificates of all."""
        for name in ("namesrv", "agent", "client"):
            self.authority.issue(name)


def credentials(files: Files) -> Credentials:
    return Credentials(ca=str(files.ca), certificate=str(files.certificate), key=str(files.key))


def agent_config(name_server: str, redis: RedisProcess, files: Files, tls: TlsConfig) -> AgentConfig:
    return AgentConfig(
        broker=BrokerSection(cluster="c1", name="a", addr=redis.addr),
        name_servers=NameServersSection(addrs=(name_server,)),
        credentials=credentials(files),
        tls=tls,
        heartbeat=HeartbeatSection(interval_seconds=1.0, expiry_seconds=10.0),
        probe=ProbeSection(kind="redis", interval_seconds=0.2),
        topics=TopicsSection(topic=(TopicRow(name="orders", read_queues=4, write_queues=4),)),
        rpc=RpcSection(listen="127.0.0.1:0", grace_seconds=1.0),
        groups=GroupsSection(warm_up_seconds=0.0),
        monitoring=MonitoringSection(listen="127.0.0.1:0"),
    )


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[Secured]:
    authority = Authority(tmp_path)
    files = authority.issue("namesrv")
    own, _ = authority.issue("agent"), authority.issue("client")
    settings = {
        "tls.certificate": files.certificate,
        "tls.key": files.key,
        "tls.client_ca": files.ca,
    }
    async with (
        real_name_server(tmp_path / "namesrv", settings=settings) as server,
        redis_process(tmp_path / "redis") as redis,
        agent_process(tmp_path / "agent", agent_config(server.addr, redis, own, tls_config(own, mutual=True))) as agent,
    ):
        yield Secured(authority, server, agent)


async def test_messages_flow_over_mutual_tls_through_a_rotation_of_all_certificates(secured: Secured) -> None:
    own = credentials(secured.client)
    received: list[bytes] = []

    async def listener(message: ReceivedMessage) -> ConsumeResult:
        received.append(message.body)
        return ConsumeResult.SUCCESS

    async with (
        Producer(secured.server.addr, transport=RedisStreamsTransport, credentials=own) as producer,
        PushConsumer(
            secured.server.addr,
            group="billing",
            subscriptions="orders",
            listener=listener,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            transport=RedisStreamsTransport,
            credentials=own,
        ),
    ):
        await producer.client.wait_until_ready(["orders"], timeout_seconds=PATIENCE_SECONDS)
        await producer.send(Message("orders", b"before"))
        await eventually(lambda: received == [b"before"])

        opener = producer.client._opener
        secured.rotate()
        await eventually(lambda: secured.agent.said("credentials reloaded; new connections use them"))
        await eventually(lambda: opener.version)
        assert len(await producer.client.list_topics()) >= 1
        await producer.send(Message("orders", b"after"))
        await eventually(lambda: received == [b"before", b"after"])
    of_broker = [row["event"] for row in secured.server.events() if row.get("broker_name") == "a"]
    assert [event for event in of_broker if event in {"SUSPECTED", "EXPIRED", "REREGISTERED", "UNREGISTERED"}] == []
    assert len(secured.agent.said("registered")) == 1


async def test_pointsmanctl_reads_its_certificate_from_the_environment_and_fails_clearly_without(
    secured: Secured,
) -> None:
    files, addr = secured.client, secured.server.addr
    env = {
        "POINTSMAN_NAMESRV": addr,
        "POINTSMAN_TLS_CA": str(files.ca),
        "POINTSMAN_TLS_CERTIFICATE": str(files.certificate),
        "POINTSMAN_TLS_KEY": str(files.key),
    }
    await eventually(lambda: secured.agent.said("registered"))
    for command in (["health"], ["route", "orders"], ["brokers"], ["groups"]):
        ended = await ctl_process(*command, **env)
        assert (ended.code, ended.err) == (0, ""), command

    options = [f"--{name.removeprefix('POINTSMAN_').lower().replace('_', '-')}={value}" for name, value in env.items()]
    ended = await ctl_process(*options, "health")
    assert ended.code == 0, ended.err

    ended = await ctl_process("health", POINTSMAN_NAMESRV=addr)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == (
        f"pointsmanctl: no name server is responding: {addr} (the server closed the connection: if it uses TLS, "
        "give --tls-ca, and --tls-certificate and --tls-key if it requires a client certificate; "
        "if it is RocketMQ's name server, write rocketmq:// before its address)\n"
    )
    ended = await ctl_process("--tls", "health", POINTSMAN_NAMESRV=addr)
    assert (ended.code, ended.out) == (1, "")
    assert "the server's certificate is not signed by a trusted CA: check --tls-ca" in ended.err
    assert len(ended.err.splitlines()) == 1


async def test_a_client_without_a_certificate_is_not_served(secured: Secured) -> None:
    stranger = Credentials(ca=str(secured.authority.file))
    async with Producer(secured.server.addr, transport=RedisStreamsTransport, credentials=stranger) as producer:
        with pytest.raises(NameServersUnavailableError, match="with a certificate that its client CA signed"):
            await producer.send(Message("orders", b"never"), timeout_seconds=10.0)
