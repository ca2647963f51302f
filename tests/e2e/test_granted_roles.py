"""Roles by certificate, with processes: agents of two brokers, an application and an operator, each held to its own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import pytest

from pointsman.config import to_toml
from pointsman.daemon.access.access_settings import AccessSettings, Grant
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from pointsman_agent.config import AgentConfig
from pointsman_client import ConsumeFrom, ConsumeResult, Message, Producer, PushConsumer, ReceivedMessage
from pointsman_client.redis_streams import RedisStreamsTransport
from pointsman_namesrv.config import NameServerConfig, ServerConfig
from tests.e2e.test_mutual_tls import PATIENCE_SECONDS, agent_config, credentials
from tests.kit.agent.process import agent_process
from tests.kit.broker.redis.process import redis_process
from tests.kit.certificates import Authority, Files
from tests.kit.ctl.command import Ended
from tests.kit.ctl.process import ctl_process
from tests.kit.name_server import wire
from tests.kit.name_server.process import RealNameServer, real_name_server
from tests.kit.tls_peers import tls_config
from tests.kit.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.redis, pytest.mark.timeout(300)]

GRANTS = (
    Grant(identity="broker-a.test", role="broker", cluster="c1", broker_name="a"),
    Grant(identity="broker-b.test", role="broker", cluster="c1", broker_name="b"),
    Grant(identity="shop.test", role="client"),
    Grant(identity="ops.test", role="admin"),
)


@dataclass
class Fleet:
    """A name server and the agents of brokers a and b, with grants."""

    server: RealNameServer
    files: dict[str, Files]

    async def ctl(self, who: str, *arguments: str) -> Ended:
        files = self.files[who]
        return await ctl_process(
            *arguments,
            POINTSMAN_NAMESRV=self.server.addr,
            POINTSMAN_TLS_CA=str(files.ca),
            POINTSMAN_TLS_CERTIFICATE=str(files.certificate),
            POINTSMAN_TLS_KEY=str(files.key),
        )

    def events(self, *kinds: str) -> list[dict[str, object]]:
        return self.server.events(*kinds)


def with_grants(config: AgentConfig, name: str) -> AgentConfig:
    return replace(
        config,
        broker=replace(config.broker, name=name),
        access=AccessSettings(grants=GRANTS),
    )


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    authority = Authority(tmp_path)
    loopback = ("localhost", "127.0.0.1")
    server_files = authority.issue("namesrv")
    files = {
        name: authority.issue(name, f"{name}.test", *(loopback if name.startswith("broker") else ()))
        for name in ("broker-a", "broker-b", "shop", "ops")
    }
    file = tmp_path / "namesrv.toml"
    config = NameServerConfig(
        server=ServerConfig(warm_up_seconds=0),
        tls=tls_config(server_files, mutual=True),
        access=AccessSettings(grants=GRANTS),
    )
    file.write_text(to_toml(config), encoding="utf-8")
    async with real_name_server(tmp_path / "namesrv", "--config", str(file)) as server, AsyncExitStack() as stack:
        for name in ("a", "b"):
            redis = await stack.enter_async_context(redis_process(tmp_path / f"redis-{name}"))
            own = files[f"broker-{name}"]
            config_of = agent_config(server.addr, redis, own, tls_config(own, mutual=True))
            agent = await stack.enter_async_context(agent_process(tmp_path / name, with_grants(config_of, name)))
            await eventually(lambda agent=agent: agent.said("registered"))  # type: ignore[misc]
        yield Fleet(server, files)


async def test_each_role_does_its_own_work_alone(fleet: Fleet) -> None:
    received: list[bytes] = []
    own = credentials(fleet.files["shop"])

    async def listener(message: ReceivedMessage) -> ConsumeResult:
        received.append(message.body)
        return ConsumeResult.SUCCESS

    async with (
        Producer(fleet.server.addr, transport=RedisStreamsTransport, credentials=own) as producer,
        PushConsumer(
            fleet.server.addr,
            group="billing",
            subscriptions="orders",
            listener=listener,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            transport=RedisStreamsTransport,
            credentials=own,
        ),
    ):
        await producer.client.wait_until_ready(["orders"], timeout_seconds=PATIENCE_SECONDS)
        sent = [b"%d" % number for number in range(8)]
        for body in sent:
            await producer.send(Message("orders", body))
        await eventually(lambda: sorted(received) == sent)

        as_client = await fleet.ctl("shop", "wipe-write-perm", "a")
        assert as_client.code == 1
        assert "shop.test" in as_client.err
        assert (await fleet.ctl("shop", "route", "orders")).code == 0

        as_admin = await fleet.ctl("ops", "wipe-write-perm", "a")
        assert (as_admin.code, as_admin.err) == (0, "")
        await eventually(lambda: fleet.events("PERM_CHANGED"))
        [wiped] = fleet.events("PERM_CHANGED")
        detail = wiped["detail"]
        assert isinstance(detail, dict)
        assert detail["by"] == "ops.test"

        drained = await fleet.ctl("ops", "drain-broker", "c1/b/0", "--yes", "--quiet", "1s")
        assert drained.code == 0, drained.err
        await eventually(lambda: [row for row in fleet.events("UNREGISTERED") if row["broker_name"] == "b"])


async def test_a_broker_registers_under_its_own_name_alone(fleet: Fleet) -> None:
    files = fleet.files["broker-b"]
    secrets = grpc.ssl_channel_credentials(
        files.ca.read_bytes(), files.key.read_bytes(), files.certificate.read_bytes()
    )
    async with grpc.aio.secure_channel(fleet.server.addr, secrets) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as denied:
            await RegistrationServiceStub(channel).RegisterBroker(
                wire.registration(wire.topic("orders"), who=wire.identity(name="a", addr="10.0.0.66:10911"))
            )
    assert denied.value.code() is grpc.StatusCode.PERMISSION_DENIED
    listed = json.loads((await fleet.ctl("ops", "--output", "json", "brokers")).out)
    assert "10.0.0.66" not in json.dumps(listed)
    await eventually(lambda: len(fleet.events("REGISTERED")) == 2)
    assert {row["broker_addr"] for row in fleet.events()} & {"10.0.0.66:10911"} == set()
    assert [
        line for line in fleet.server.said() if line.get("identity") == "broker-b.test" and line["level"] == "WARNING"
    ]
