"""Roles on RocketMQ's port: by address and by certificate, code by code."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pointsman.daemon.access.access_settings import AccessSettings, Grant
from pointsman.daemon.tls.tls import client_certificate
from pointsman.manual_clock import ManualClock
from pointsman.rocketmq.codes import RequestCode
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.config import RemotingConfig
from pointsman_namesrv.remoting.requests import RULES
from tests.kit.access_tokens import TokenFolder
from tests.kit.broker.rocketmq.frames import broker_ext, register, register_body, topic_config
from tests.kit.broker.rocketmq.peer import RemotingPeer, remoting_peer
from tests.kit.certificates import Authority, der
from tests.kit.history.rows import rows_in
from tests.kit.name_server.in_process import running_name_server
from tests.kit.tls_peers import context, tls_config
from tests.kit.waiting import eventually

NO_PERMISSION = 16
OPS = Grant("admin", "ops")
BROKER = Grant("broker", address="127.0.0.0/8", cluster="DefaultCluster", broker_name="broker-a")
BROKERS = Grant("broker", address="127.0.0.0/8", cluster="DefaultCluster", broker_name="*")
CLIENT = Grant("client", address="127.0.0.0/8")
ADMIN = Grant("admin", address="127.0.0.0/8")
ELSEWHERE = Grant("admin", address="10.0.0.0/8")


@pytest.fixture
def grants() -> tuple[Grant, ...]:
    """A test that needs others sets them."""
    return (BROKER,)


@pytest.fixture
def access(tmp_path: Path, grants: tuple[Grant, ...]) -> AccessSettings:
    return TokenFolder(tmp_path, "ops").settings(OPS, *grants)


@pytest.fixture
async def server(clock: ManualClock, tmp_path: Path, access: AccessSettings) -> AsyncIterator[NameServerApp]:
    async with running_name_server(
        clock=clock, history=tmp_path / "history", remoting=RemotingConfig(listen="127.0.0.1:0"), access=access
    ) as app:
        yield app


async def registers(peer: RemotingPeer, name: str = "broker-a", addr: str = "10.0.0.1:10911", **ext: str) -> int:
    peer.send(register({**broker_ext(name, addr=addr), **ext}, register_body()))
    return (await peer.answer()).code


def denied(server: NameServerApp, code: str, reason: str) -> float:
    labels = {"method": f"remoting {code}", "reason": reason}
    return server.metrics.registry.get_sample_value("pointsman_namesrv_denied_calls_total", labels) or 0.0


async def test_every_code_that_is_served_has_a_rule(server: NameServerApp) -> None:
    assert server.parts.remoting is not None
    assert set(server.parts.remoting.requests._handlers) == set(RULES)


async def test_a_broker_by_its_address_registers_its_own_name_and_no_other(
    rocketmq: RemotingPeer, server: NameServerApp, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="pointsman.daemon.access.access")
    assert await registers(rocketmq) == 0
    for ext in ({"brokerName": "broker-b"}, {"clusterName": "Other"}, {"brokerName": ""}, {"clusterName": "*"}):
        assert await registers(rocketmq, **ext) == NO_PERMISSION
    assert (await rocketmq.ask(105, {"topic": "TopicTest"})).code == 0
    other = broker_ext("broker-b")
    for code in (RequestCode.UNREGISTER_BROKER, RequestCode.QUERY_DATA_VERSION, RequestCode.BROKER_HEARTBEAT):
        assert (await rocketmq.ask(code, other)).code == NO_PERMISSION
        assert (await rocketmq.ask(code, {})).code == NO_PERMISSION
        assert denied(server, code.name, "other_broker") == 2
        assert (await rocketmq.ask(code, broker_ext())).code == 0
    facts = caplog.records[0].facts  # type: ignore[attr-defined]  # of ours
    assert (facts["identity"], facts["reason"]) == ("127.0.0.0/8", "other_broker")
    assert facts["peer"].startswith("127.0.0.1:")


@pytest.mark.parametrize("grants", [(BROKERS,)])
async def test_one_topic_is_added_to_an_own_broker_alone(rocketmq: RemotingPeer, server: NameServerApp) -> None:
    assert await registers(rocketmq) == await registers(rocketmq, "broker-b", addr="10.0.0.2:10911") == 0
    networks = server.access._networks
    networks[:] = [(network, BROKER) for network, _ in networks]
    queues = {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicSysFlag": 0}

    def one(*names: str, **other: object) -> bytes:
        return json.dumps({"queueDatas": [{"brokerName": name, **queues, **other} for name in names]}).encode()

    async with remoting_peer(server.remoting_addr) as peer:
        assert (await peer.ask(217, {"topic": "Both"}, one("broker-a", "broker-b"))).code == NO_PERMISSION
        assert (await peer.ask(105, {"topic": "Both"})).code == 17
        assert (await peer.ask(217, {"topic": "Theirs"}, one("broker-b"))).code == NO_PERMISSION
        assert (await peer.ask(217, {"topic": "Added"}, one("broker-a"))).code == 0
        assert (await peer.ask(105, {"topic": "Theirs"})).code == 17
        assert (await peer.ask(105, {"topic": "Added"})).code == 0
        bad = one("broker-a")[:-2] + b"," + one("broker-a", perm=-5)[len(b'{"queueDatas": [') :]
        assert (await peer.ask(217, {"topic": "Bad"}, bad)).code == 1
        assert (await peer.ask(105, {"topic": "Bad"})).code == 17


@pytest.mark.parametrize("grants", [(BROKERS,)])
async def test_a_broker_of_a_cluster_registers_each_name_of_it(rocketmq: RemotingPeer) -> None:
    assert await registers(rocketmq) == 0
    assert await registers(rocketmq, "broker-b", addr="10.0.0.2:10911") == 0
    assert await registers(rocketmq, clusterName="Other") == NO_PERMISSION


@pytest.mark.parametrize("grants", [(CLIENT,)])
async def test_a_client_reads_and_changes_nothing(rocketmq: RemotingPeer, server: NameServerApp) -> None:
    for code in (100, 102, 103, 104, 205, 216, 217, 318, 319, 322, 327, 904):
        answer = await rocketmq.ask(code, broker_ext(), register_body())
        assert answer.code == NO_PERMISSION, code
        assert "has the role client" in (answer.command.remark or "")
    for code in (105, 106, 206, 224, 304, 311, 312, 313, 901):
        ext = {"topic": "T", "cluster": "c", **broker_ext()}
        assert (await rocketmq.ask(code, ext)).code != NO_PERMISSION, code
    assert denied(server, "WIPE_WRITE_PERM_OF_BROKER", "wrong_role") == 1


@pytest.mark.parametrize("grants", [(ADMIN,)])
async def test_an_admin_may_everything_and_the_history_has_its_address(
    rocketmq: RemotingPeer, tmp_path: Path, clock: ManualClock
) -> None:
    assert await registers(rocketmq, "broker-z") == 0
    assert (await rocketmq.ask(100, {"namespace": "n", "key": "k", "value": "v"})).code == 0

    def authors() -> list[str]:
        return [row["detail"]["by"] for row in rows_in(tmp_path / "history") if row["event"] == "KV_CHANGED"]

    await eventually(authors, clock=clock, step=1.0)
    assert authors()[0].startswith("remoting 127.0.0.1:")


@pytest.mark.parametrize("grants", [(ELSEWHERE,)])
async def test_an_address_without_a_grant_is_denied_everything_and_stays_connected(
    rocketmq: RemotingPeer, server: NameServerApp
) -> None:
    for _ in range(2):
        for code in (105, 103, 106, 100, 999):
            answer = await rocketmq.ask(code, {"topic": "T"})
            assert answer.code == NO_PERMISSION
            assert "has no role here" in (answer.command.remark or "")
    assert denied(server, "GET_ROUTEINFO_BY_TOPIC", "no_grant") == 2
    assert denied(server, "OTHER", "no_grant") == 2


async def test_a_cached_response_is_not_sent_to_an_address_without_a_role(server: NameServerApp) -> None:
    """Requests are cached by their bytes over all connections; the caller's role is not part of the key."""
    async with remoting_peer(server.remoting_addr) as ours:
        assert await registers(ours) == 0
        for _ in range(3):
            assert (await ours.ask(105, {"topic": "TopicTest"})).code == 0
        # As if from another network: the grants of networks are removed before the next connection opens.
        server.access._networks.clear()
        async with remoting_peer(server.remoting_addr) as theirs:
            for _ in range(3):
                assert (await theirs.ask(105, {"topic": "TopicTest"})).code == NO_PERMISSION
        assert (await ours.ask(105, {"topic": "TopicTest"})).code == 0


async def test_limits_apply_to_bodies_that_are_parsed_and_not_to_cached_ones(clock: ManualClock) -> None:
    settings = AccessSettings(registrations_burst=2, registrations_per_second=1.0, admin_calls_burst=1)
    async with (
        running_name_server(clock=clock, remoting=RemotingConfig(listen="127.0.0.1:0"), access=settings) as server,
        remoting_peer(server.remoting_addr) as peer,
    ):
        many = {f"t{number}": topic_config(f"t{number}") for number in range(20)}
        for _ in range(10):
            peer.send(register(broker_ext(), register_body(many)))
            assert (await peer.answer()).code == 0
        assert await registers(peer, "broker-b") == 0
        assert await registers(peer, "broker-c") == 2
        assert denied(server, "REGISTER_BROKER", "rate") == 1
        assert (await peer.ask(100, {"namespace": "n", "key": "k", "value": "v"})).code == 0
        assert (await peer.ask(100, {"namespace": "n", "key": "k", "value": "w"})).code == 2
        assert (await peer.ask(105, {"topic": "t1"})).code == 0
        await clock.advance(1.0)
        assert await registers(peer, "broker-c") == 0


async def test_a_certificate_gives_the_role_and_names_the_author(clock: ManualClock, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = tls_config(authority.issue("server"), mutual=True)
    grants = (
        Grant("broker", "broker-a.example", cluster="DefaultCluster", broker_name="broker-a"),
        Grant("admin", "ops.example"),
    )
    async with running_name_server(
        clock=clock,
        history=tmp_path / "history",
        tls=tls,
        remoting=RemotingConfig(listen="127.0.0.1:0"),
        access=AccessSettings(grants=grants),
    ) as server:
        broker = context(authority.file, authority.issue("broker", "broker-a.example"))
        async with remoting_peer(server.remoting_addr, broker) as peer:
            assert await registers(peer) == 0
            assert await registers(peer, "broker-b") == NO_PERMISSION
            assert (await peer.ask(205, {"brokerName": "broker-a"})).code == NO_PERMISSION
        stranger = context(authority.file, authority.issue("stranger", "stranger.example"))
        async with remoting_peer(server.remoting_addr, stranger) as peer:
            assert (await peer.ask(105, {"topic": "TopicTest"})).code == NO_PERMISSION
        ops = context(authority.file, authority.issue("ops", "ops.example"))
        async with remoting_peer(server.remoting_addr, ops) as peer:
            assert (await peer.ask(205, {"brokerName": "broker-a"})).code == 0

        def authors() -> list[str]:
            return [row["detail"]["by"] for row in rows_in(tmp_path / "history") if row["event"] == "PERM_CHANGED"]

        await eventually(lambda: authors() == ["ops.example"], clock=clock, step=1.0)


async def test_a_denied_certificate_is_closed_and_refused_afterwards(clock: ManualClock, tmp_path: Path) -> None:
    authority, denied_file = Authority(tmp_path), tmp_path / "denied"
    denied_file.write_text("# none\n", encoding="utf-8")
    stolen, fresh = authority.issue("stolen", "ops.example"), authority.issue("fresh", "ops.example")
    async with running_name_server(
        clock=clock,
        tls=tls_config(authority.issue("server"), mutual=True),
        remoting=RemotingConfig(listen="127.0.0.1:0"),
        access=AccessSettings(denied_certificates=str(denied_file)),
    ) as server:
        theirs, ours = context(authority.file, stolen), context(authority.file, fresh)
        async with (
            remoting_peer(server.remoting_addr, theirs) as gone,
            remoting_peer(server.remoting_addr, ours) as peer,
        ):
            assert await registers(gone) == 0
            assert await registers(peer, "broker-b", addr="10.0.0.2:10911") == 0
            denied_file.write_text(f"serial:{client_certificate(der(stolen)).serial:X}\n", encoding="utf-8")
            ended = asyncio.create_task(gone.until_closed())
            await eventually(ended.done, clock=clock, step=1.0)
            await ended
            async with remoting_peer(server.remoting_addr, theirs) as again:
                await again.until_closed()
            assert await peer.is_answered()
            assert denied(server, "handshake", "denied_certificate") == 1
