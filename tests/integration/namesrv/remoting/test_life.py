"""Brokers on RocketMQ's wire over time: connections, silence, agents next to them, warming and draining, restarts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from pointsman.manual_clock import ManualClock
from pointsman.rocketmq.frames import read_header
from pointsman.v1 import admin_service_pb2, route_service_pb2
from pointsman.v1.admin_service_pb2_grpc import AdminServiceStub
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from pointsman.v1.route_service_pb2_grpc import RouteServiceStub
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.config import RemotingConfig
from pointsman_namesrv.core.model import BrokerIdentity, GroupKey
from pointsman_namesrv.core.replica_state import Phase
from pointsman_namesrv.remoting.register_body import RegisterBody, TopicConfig
from tests.kit.broker.rocketmq.frames import ask, broker_ext, frames, register, register_body, topic_config
from tests.kit.broker.rocketmq.peer import Closed, RemotingPeer, remoting_peer
from tests.kit.history.rows import rows_in
from tests.kit.name_server import wire
from tests.kit.name_server.in_process import running_name_server
from tests.kit.waiting import eventually

A = GroupKey("DefaultCluster", "broker-a")
IDENTITY = BrokerIdentity(*A, 0, "10.0.0.1:10911")
MEMBER = "rmq_sys_SYNC_BROKER_MEMBER_broker-a"
BEAT = {name: value for name, value in broker_ext().items() if name != "brokerId"}


async def registered(peer: RemotingPeer, ext: dict[str, str] | None = None, body: bytes | None = None) -> None:
    peer.send(register(ext, body))
    assert (await peer.answer()).code == 0


def phase(server: NameServerApp, broker_id: int = 0) -> Phase | None:
    group = server.core.routes.groups.get(A)
    replica = None if group is None else group.replicas.get(broker_id)
    return None if replica is None else replica.state.phase


async def pass_time(clock: ManualClock, seconds: float) -> None:
    """Let time pass in steps that are no pause of the server."""
    for _ in range(round(seconds * 2)):
        await clock.advance(0.5)


async def test_a_broker_that_is_silent_on_its_open_connection_is_said_to_hang(
    clock: ManualClock, tmp_path: Path
) -> None:
    remoting = RemotingConfig(listen="127.0.0.1:0")
    async with (
        running_name_server(clock=clock, history=tmp_path, remoting=remoting) as server,
        remoting_peer(server.remoting_addr) as broker,
    ):
        await registered(broker)
        await pass_time(clock, 80)
        async with grpc.aio.insecure_channel(server.addr) as channel:
            listed = await AdminServiceStub(channel).ListBrokers(admin_service_pb2.ListBrokersRequest())
        (status,) = listed.brokers
        assert (status.reason, status.stream_open, status.self_registered) == ("SILENCE", True, True)
        await pass_time(clock, 46)

    rows = [row for row in rows_in(tmp_path) if row["reason"] == "SILENCE"]
    assert [(row["event"], row["detail"]) for row in rows] == [
        ("SUSPECTED", {"connection": "open"}),
        ("EXPIRED", {"connection": "open"}),
    ]


async def test_the_end_of_a_connection_is_suspicion_and_then_a_removal(
    server: NameServerApp, clock: ManualClock
) -> None:
    await pass_time(clock, 130)  # a server that has just started is lenient
    async with remoting_peer(server.remoting_addr) as broker:
        await registered(broker)
    await eventually(lambda: phase(server) is Phase.SUSPECT)
    await pass_time(clock, 16)
    await eventually(lambda: phase(server) is None)


async def test_a_topic_whose_brokers_are_all_down_does_not_exist_for_clients(
    server: NameServerApp, clock: ManualClock
) -> None:
    await pass_time(clock, 130)
    async with remoting_peer(server.remoting_addr) as client:
        async with remoting_peer(server.remoting_addr) as broker:
            await registered(broker)
            assert (await client.ask(105, {"topic": "TopicTest"})).code == 0
        await pass_time(clock, 16)
        await eventually(lambda: phase(server) is None)
        assert server.core.routes.known("TopicTest")
        assert (await client.ask(105, {"topic": "TopicTest"})).code == 17
        assert (
            (await client.ask(206)).json()
            == (await client.ask(224, {"cluster": A.cluster})).json()
            == {"topicList": []}
        )
        async with remoting_peer(server.remoting_addr) as broker:
            await registered(broker)
            assert (await client.ask(105, {"topic": "TopicTest"})).code == 0


async def test_a_request_of_another_client_keeps_no_broker_alive(server: NameServerApp, clock: ManualClock) -> None:
    async with remoting_peer(server.remoting_addr) as broker, remoting_peer(server.remoting_addr) as stranger:
        await registered(broker, {"heartbeatTimeoutMillis": "10000"})
        for _ in range(16):
            await pass_time(clock, 1)
            await stranger.ask(322, broker_ext(), b'{"counter":1,"stateVersion":0,"timestamp":1700000000001}')
        assert phase(server) is None


async def test_an_unregistration_from_another_connection_than_the_current_one_is_refused(
    server: NameServerApp,
) -> None:
    async with remoting_peer(server.remoting_addr) as living, remoting_peer(server.remoting_addr) as earlier:
        await registered(living)
        refused = await earlier.ask(104, broker_ext())
        assert refused.code == 1
        assert refused.command.remark == (
            "broker DefaultCluster/broker-a/0 at 10.0.0.1:10911 was not unregistered: "
            "another connection, which is open, sends its heartbeats"
        )
        assert phase(server) is Phase.UP
        assert (await living.ask(104, broker_ext())).code == 0
        assert phase(server) is None
        # It is no longer registered.
        assert (await earlier.ask(104, broker_ext())).code == 0


async def test_an_unchanged_registration_is_known_by_its_bytes(
    rocketmq: RemotingPeer, server: NameServerApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = {f"t{i}": topic_config(f"t{i}") for i in range(20)}
    await registered(rocketmq, body=register_body(table, sent_at=1))
    before = server.core.routes.change
    monkeypatch.setattr("pointsman_namesrv.remoting.broker_codes.RegisterBody", None)  # reading would fail now
    await registered(rocketmq, body=register_body(table, sent_at=2_222))
    assert server.core.routes.change == before
    rocketmq.send(register(body=register_body(table, counter=2)))
    assert (await rocketmq.answer()).code == 1


class TestAChangeOfAKnownTable:
    """Only the differences are parsed, with the same result as parsing everything."""

    @pytest.fixture
    def bodies_read(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """The bytes of each body that is read."""
        sizes: list[int] = []

        class Watched(RegisterBody):
            def slices(self, body: bytes, *, version: int) -> Iterator[dict[str, TopicConfig]]:
                sizes.append(len(body))
                return super().slices(body, version=version)

        monkeypatch.setattr("pointsman_namesrv.remoting.broker_codes.RegisterBody", Watched)
        return sizes

    @pytest.fixture
    def table(self) -> dict[str, dict[str, object]]:
        return {f"t{i}": topic_config(f"t{i}") for i in range(20)}

    @staticmethod
    def perms(server: NameServerApp) -> dict[str, int]:
        (replica,) = server.core.routes.groups[A].replicas.values()
        return {topic: queues.perm for topic, queues in replica.registration.topics.items()}

    async def test_only_the_differences_are_parsed(
        self, rocketmq: RemotingPeer, server: NameServerApp, table: dict[str, dict[str, object]], bodies_read: list[int]
    ) -> None:
        await registered(rocketmq, body=register_body(table))
        table["t7"] = topic_config("t7", perm=4)
        table["new"] = topic_config("new")
        del table["t9"]
        await registered(rocketmq, body=register_body(table, counter=2))
        await registered(rocketmq, body=register_body(table, counter=3))
        assert self.perms(server) == {f"t{i}": 4 if i == 7 else 6 for i in range(20)} | {"new": 6}
        whole, part, version_alone = bodies_read
        assert part < 0.8 * whole
        assert version_alone < 0.2 * whole
        assert server.core.registration_of(IDENTITY).data_version.counter == 3  # type: ignore[union-attr]  # it is held

    async def test_a_deleted_topic_comes_back_with_the_next_version(
        self, rocketmq: RemotingPeer, server: NameServerApp, table: dict[str, dict[str, object]]
    ) -> None:
        await registered(rocketmq, body=register_body(table))
        assert (await rocketmq.ask(216, {"topic": "t1"})).code == 0
        await registered(rocketmq, body=register_body(table))
        assert "t1" not in self.perms(server)
        # Another replica's version ends the deletion, and this one's table is read again all the same.
        server.core.overrides.tombstones.clear()
        table["t7"] = topic_config("t7", perm=4)
        await registered(rocketmq, body=register_body(table, counter=2))
        assert self.perms(server) == {f"t{i}": 4 if i == 7 else 6 for i in range(20)}

    async def test_one_changed_topic_of_many_ends_a_wipe_as_the_full_table_does(
        self, rocketmq: RemotingPeer, server: NameServerApp, table: dict[str, dict[str, object]]
    ) -> None:
        await registered(rocketmq, body=register_body(table))
        assert (await rocketmq.ask(205, {"brokerName": A.broker_name})).code == 0
        assert server.core.overrides.wipes
        table["t7"] = topic_config("t7", readQueueNums=4)
        await registered(rocketmq, body=register_body(table, counter=2))
        assert not server.core.overrides.wipes

    async def test_another_store_is_parsed_completely(
        self, rocketmq: RemotingPeer, server: NameServerApp, table: dict[str, dict[str, object]]
    ) -> None:
        await registered(rocketmq, body=register_body(table, counter=5))
        later = {"counter": 1, "stateVersion": 0, "timestamp": 1_800_000_000_000}
        del table["t19"]
        await registered(rocketmq, body=register_body(table, dataVersion=later))
        assert set(self.perms(server)) == {f"t{i}" for i in range(19)}

    async def test_a_broker_that_unregistered_during_the_parse_is_parsed_completely(
        self, rocketmq: RemotingPeer, server: NameServerApp, table: dict[str, dict[str, object]]
    ) -> None:
        await registered(rocketmq, body=register_body(table))
        assert server.parts.remoting is not None
        (connection,) = server.parts.remoting._connections
        table["t7"] = topic_config("t7", perm=4)
        body = register_body(table, counter=2)
        (frame,) = frames(register(body=body))
        steps = server.parts.remoting._brokers.register(connection, read_header(frame.form, frame.header), body)
        assert next(steps) is None
        assert (await rocketmq.ask(104, broker_ext())).code == 0
        assert not server.core.routes.groups
        assert [answer.code for answer in steps if answer is not None] == [0]
        assert len(self.perms(server)) == 20


async def test_a_large_registration_is_parsed_in_slices_while_routes_are_served(server: NameServerApp) -> None:
    table = {f"topic-{i}": topic_config(f"topic-{i}") for i in range(7_000)}
    async with remoting_peer(server.remoting_addr) as broker, remoting_peer(server.remoting_addr) as client:
        broker.send(register(body=register_body(table)) + ask(105, {"topic": "topic-6999"}, opaque=9))
        asked = 0
        while (await client.ask(105, {"topic": "topic-1"})).code == 17:
            asked += 1
        assert asked > 3
        assert (await broker.answer()).code == 0
        route = await broker.answer()
        assert (route.code, route.command.opaque) == (0, 9)


async def test_everything_else_sees_them(rocketmq: RemotingPeer, server: NameServerApp, tmp_path: Path) -> None:
    body = register_body(
        {"%RETRY%g+TopicTest": topic_config("%RETRY%g+TopicTest"), "TopicTest": topic_config("TopicTest")}
    )
    await registered(rocketmq, broker_ext("host-1.example.com"), body)
    async with grpc.aio.insecure_channel(server.addr) as channel:
        for topic in ("TopicTest", "%RETRY%g+TopicTest"):
            request = route_service_pb2.GetTopicRouteRequest(topic=topic)
            route = (await RouteServiceStub(channel).GetTopicRoute(request)).route
            assert [data.broker_name for data in route.broker_datas] == ["host-1.example.com"]
        query = admin_service_pb2.ListBrokersRequest()
        (broker,) = (await AdminServiceStub(channel).ListBrokers(query)).brokers
        assert (broker.broker_version, broker.agent_version) == ("5.3.3", "")

    def row() -> bool:
        rows = [row for row in rows_in(tmp_path / "history") if row["event"] == "REGISTERED"]
        return bool(rows) and (rows[0]["broker_version"], rows[0]["detail"]["source"]) == ("5.3.3", "remoting")

    await eventually(row)


async def test_where_an_agent_registers_frames_are_heartbeats_alone(
    rocketmq: RemotingPeer, server: NameServerApp
) -> None:
    async with grpc.aio.insecure_channel(server.addr) as channel:
        stub = RegistrationServiceStub(channel)
        who = wire.identity(cluster="DefaultCluster", name="broker-a", addr="10.0.0.1:10911")
        await stub.RegisterBroker(wire.registration(wire.topic("agents"), who=who))
        await registered(rocketmq)
        assert (await rocketmq.ask(206)).json() == {"topicList": ["agents"]}
        refused = await rocketmq.ask(104, broker_ext())
        assert refused.code == 1
        assert "its agent holds the registration" in (refused.command.remark or "")
        assert phase(server) is Phase.UP
        generation = server.core.routes.groups[A].replicas[0].generation
        await stub.UnregisterBroker(wire.unregistration(who, generation))
    assert phase(server) is None
    await registered(rocketmq)
    assert (await rocketmq.ask(206)).json() == {"topicList": ["Other", "TopicTest"]}


# --- warming, draining, stopping ----------------------------------------------------------------------------------


class TestWarming:
    @pytest.fixture
    def warm_up_seconds(self) -> float:
        return 45.0

    async def test_clients_are_redirected_by_a_closed_connection(
        self, server: NameServerApp, clock: ManualClock
    ) -> None:
        async with remoting_peer(server.remoting_addr) as client:
            assert (await client.ask(106)).code == 0
            client.send(ask(105, {"topic": "TopicTest"}))
            await client.until_closed()
        await pass_time(clock, 46)
        async with remoting_peer(server.remoting_addr) as client:
            assert (await client.ask(105, {"topic": "TopicTest"})).code == 17

    async def test_brokers_are_served(self, server: NameServerApp) -> None:
        async with remoting_peer(server.remoting_addr) as broker:
            assert (await broker.ask(105, {"topic": MEMBER})).code == 17
            await registered(broker)
            assert (await broker.ask(105, {"topic": "TopicTest"})).code == 0
            assert (await broker.ask(104, broker_ext())).code == 0
            assert (await broker.ask(105, {"topic": "TopicTest"})).code == 17

    async def test_responses_before_the_closing_request_are_not_lost(self, server: NameServerApp) -> None:
        async with remoting_peer(server.remoting_addr) as client:
            client.send(ask(106, opaque=1) + ask(105, {"topic": "t"}, opaque=2) + ask(106, opaque=3))
            assert (await client.answer()).command.opaque == 1
            with pytest.raises(Closed):
                await client.answer()


async def test_a_node_that_drains_disconnects_clients_and_keeps_brokers(server: NameServerApp) -> None:
    async with remoting_peer(server.remoting_addr) as client, remoting_peer(server.remoting_addr) as broker:
        await registered(broker)
        assert [(await client.ask(105, {"topic": "TopicTest"})).code for _ in range(4)] == [0] * 4
        server.lifecycle.drain(by="ann")
        await client.until_closed()
        assert (await broker.ask(105, {"topic": "TopicTest"})).code == 0
        async with remoting_peer(server.remoting_addr) as late:
            assert (await late.ask(901, BEAT)).code == 0
            late.send(ask(105, {"topic": "TopicTest"}))
            await late.until_closed()
        assert phase(server) is Phase.UP


async def test_a_stop_unregisters_no_brokers_and_a_warm_restart_knows_them(clock: ManualClock, tmp_path: Path) -> None:
    history, snapshot, remoting = tmp_path / "history", tmp_path / "state", RemotingConfig(listen="127.0.0.1:0")
    async with running_name_server(clock=clock, remoting=remoting, history=history, snapshot=snapshot) as server:
        await pass_time(clock, 130)
        peer = remoting_peer(server.remoting_addr)
        broker = await peer.__aenter__()
        await registered(broker)
    await broker.until_closed()
    await peer.__aexit__(None, None, None)
    assert not [row for row in rows_in(tmp_path / "history") if row["event"] == "SUSPECTED"]
    async with running_name_server(clock=clock, remoting=remoting, history=history, snapshot=snapshot) as server:
        assert phase(server) is Phase.PROVISIONAL
        async with remoting_peer(server.remoting_addr) as again:
            again.send(ask(904, BEAT, flag=2))
            assert await again.is_answered()
            assert phase(server) is Phase.UP
            await registered(again)
