"""A restarted server: it serves the snapshot immediately, and reports a topic as absent only when certain."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import grpc
import pytest

from pointsman.daemon.rpc.rpc_server import Service
from pointsman.manual_clock import ManualClock
from pointsman.v1.admin_service_pb2 import SetDrainRequest
from pointsman.v1.broker_pb2 import BROKER_STATE_PROVISIONAL, BROKER_STATE_UP, BrokerIdentity
from pointsman.v1.registration_service_pb2 import BEAT_STATUS_OK, HeartbeatRequest
from pointsman.v1.route_service_pb2 import GetTopicRouteRequest
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.rpc.node_server import NodeServer
from pointsman_namesrv.rpc.registration import RegistrationServicer
from pointsman_namesrv.snapshot.snapshot_store import Loaded, SnapshotStore
from tests.kit.history.rows import rows_in
from tests.kit.name_server import wire
from tests.kit.name_server.held_brokers import brokers_in
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.peer import Peer, peer_of, serving
from tests.kit.name_server.process import RealNameServer, real_name_server
from tests.kit.waiting import eventually, read_until

BROKERS = [wire.identity(name, addr=f"10.0.0.{i}:10911") for i, name in enumerate("abc", 1)]
DEADLINE = 60.0


async def register_all(peer: Peer) -> dict[str, int]:
    """Register three brokers of topic ``orders``; return the generation of each."""
    generations = {}
    for who in BROKERS:
        answer = await peer.registration.RegisterBroker(wire.registration(wire.topic("orders"), who=who))
        generations[who.broker_name] = answer.generation
    return generations


async def beat(peer: Peer, who: BrokerIdentity, generation: int) -> int:
    answer = await peer.registration.Heartbeat(HeartbeatRequest(beat=wire.beat(generation, who=who)))
    return answer.answer.status


async def states(peer: Peer) -> dict[str, int]:
    """How each broker of topic ``orders`` is seen."""
    route = (await peer.route.GetTopicRoute(GetTopicRouteRequest(topic="orders"))).route
    return {data.broker_name: replica.state for data in route.broker_datas for replica in data.replicas}


async def code_of_unknown(peer: Peer) -> grpc.StatusCode:
    """The server's response for an unknown topic."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await peer.route.GetTopicRoute(GetTopicRouteRequest(topic="unknown"))
    return refused.value.code()


async def state_after_a_kill(app: NameServerApp, clock: ManualClock, state: Path) -> Path:
    """A copy of the folder with all three brokers in it, as a kill at this moment leaves it."""
    await clock.advance(app.config.snapshot.interval_seconds)
    await eventually(lambda: len(brokers_in(state)) == len(BROKERS))
    return Path(shutil.copytree(state, state.with_name("left")))


async def test_after_a_kill_every_route_is_served_immediately_and_no_agent_needs_to_register(
    clock: ManualClock, tmp_path: Path
) -> None:
    async with serving(clock=clock, snapshot=tmp_path / "state") as (app, peer):
        generations = await register_all(peer)
        left = await state_after_a_kill(app, clock, tmp_path / "state")
    async with serving(clock=clock, snapshot=left, warm_up_seconds=45.0) as (_, peer):
        assert await states(peer) == dict.fromkeys("abc", BROKER_STATE_PROVISIONAL)
        assert await code_of_unknown(peer) is grpc.StatusCode.UNAVAILABLE
        for who in BROKERS:
            assert await beat(peer, who, generations[who.broker_name]) == BEAT_STATUS_OK
        assert await states(peer) == dict.fromkeys("abc", BROKER_STATE_UP)
        # Heartbeats of all arrive, but one that registered after the last round may still be reconnecting.
        await clock.advance(4.0)
        assert await code_of_unknown(peer) is grpc.StatusCode.UNAVAILABLE
        await clock.advance(2.0)
        assert await code_of_unknown(peer) is grpc.StatusCode.NOT_FOUND


async def test_a_broker_of_the_snapshot_without_a_heartbeat_is_waited_for_at_most_the_warm_up(
    clock: ManualClock, tmp_path: Path
) -> None:
    async with serving(clock=clock, snapshot=tmp_path / "state") as (app, peer):
        generations = await register_all(peer)
        left = await state_after_a_kill(app, clock, tmp_path / "state")
    async with serving(clock=clock, snapshot=left, warm_up_seconds=45.0) as (_, peer):
        for who in BROKERS[:2]:
            await beat(peer, who, generations[who.broker_name])
        await clock.advance(44.0)
        assert await code_of_unknown(peer) is grpc.StatusCode.UNAVAILABLE
        await clock.advance(2.0)
        assert await code_of_unknown(peer) is grpc.StatusCode.NOT_FOUND
        # It is still routed, until an expiry after the restart.
        assert (await states(peer))["c"] == BROKER_STATE_PROVISIONAL
        for _ in range(4):
            for who in BROKERS[:2]:
                await beat(peer, who, generations[who.broker_name])
            await clock.advance(20.0)
        assert (await states(peer)).keys() == {"a", "b"}


async def test_without_a_snapshot_an_unknown_topic_is_not_yet_until_the_warm_up_is_over(
    clock: ManualClock, tmp_path: Path
) -> None:
    async with serving(clock=clock, snapshot=tmp_path / "state", warm_up_seconds=45.0) as (_, peer):
        await register_all(peer)
        assert await states(peer) == dict.fromkeys("abc", BROKER_STATE_UP)
        await clock.advance(44.0)
        assert await code_of_unknown(peer) is grpc.StatusCode.UNAVAILABLE
        await clock.advance(2.0)
        assert await code_of_unknown(peer) is grpc.StatusCode.NOT_FOUND


async def test_a_clean_stop_writes_what_the_last_round_had_not(clock: ManualClock, tmp_path: Path) -> None:
    async with serving(clock=clock, snapshot=tmp_path / "state") as (_, peer):
        await register_all(peer)
    async with serving(clock=clock, snapshot=tmp_path / "state") as (_, peer):
        assert await states(peer) == dict.fromkeys("abc", BROKER_STATE_PROVISIONAL)


@pytest.mark.e2e
async def test_a_killed_process_comes_back_with_all_its_routes(tmp_path: Path) -> None:
    settings: dict[str, object] = {"snapshot.directory": tmp_path / "state", "snapshot.interval_seconds": 0.1}
    async with real_name_server(tmp_path, settings=settings) as first:
        async with peer_of(first.addr) as peer:
            generations = await register_all(peer)
        await eventually(lambda: len(brokers_in(tmp_path / "state")) == len(BROKERS))
        await first.kill()
    settings["server.warm_up_seconds"] = 60.0
    async with (
        real_name_server(tmp_path, "--listen", first.addr, settings=settings),
        peer_of(first.addr) as peer,
    ):
        assert await states(peer) == dict.fromkeys("abc", BROKER_STATE_PROVISIONAL)
        assert await code_of_unknown(peer) is grpc.StatusCode.UNAVAILABLE
        for who in BROKERS:
            assert await beat(peer, who, generations[who.broker_name]) == BEAT_STATUS_OK
        assert await states(peer) == dict.fromkeys("abc", BROKER_STATE_UP)
        await read_until(
            lambda: code_of_unknown(peer), lambda found: found is grpc.StatusCode.NOT_FOUND, seconds=DEADLINE
        )


@pytest.mark.e2e
async def test_a_state_directory_in_use_is_one_clear_line_and_exit_1(tmp_path: Path) -> None:
    settings = {"snapshot.directory": tmp_path / "state"}
    async with real_name_server(tmp_path / "first", settings=settings):
        second = RealNameServer(tmp_path / "second", settings=settings)
        assert await second.fail_to_start() == 1
        taken = f"the state directory {tmp_path / 'state'} is used by another pointsman-namesrv"
        assert (second.said()[-1]["level"], second.said()[-1]["message"]) == ("ERROR", f"cannot start: {taken}")


async def test_a_node_that_was_drained_while_it_warmed_is_ready_once_the_drain_ends(
    clock: ManualClock, tmp_path: Path
) -> None:
    async with serving(clock=clock, history=tmp_path, warm_up_seconds=45.0) as (_, peer):
        await peer.admin.SetDrain(SetDrainRequest(draining=True, by="ann"))
        await clock.advance(60.0)
        for draining in (False, True, False):
            await peer.admin.SetDrain(SetDrainRequest(draining=draining, by="ann"))
        assert await code_of_unknown(peer) is grpc.StatusCode.NOT_FOUND
    assert [row["event"] for row in rows_in(tmp_path)].count("NAMESRV_READY") == 1


async def test_the_time_to_load_the_snapshot_is_not_recorded_as_a_pause(
    clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, start = SnapshotStore.load, NodeServer.start

    def take_long(store: SnapshotStore) -> Loaded:
        clock.now += 5.0
        return load(store)

    async def start_with_a_heartbeat(server: NodeServer, services: Sequence[Service]) -> None:
        (registration,) = (each.servicer for each in services if isinstance(each.servicer, RegistrationServicer))
        registration._now()
        await start(server, services)

    monkeypatch.setattr(SnapshotStore, "load", take_long)
    monkeypatch.setattr(NodeServer, "start", start_with_a_heartbeat)
    async with running_name_server(clock=clock, snapshot=tmp_path / "state", history=tmp_path / "history"):
        pass
    assert "NAMESRV_PAUSED" not in [row["event"] for row in rows_in(tmp_path / "history")]
