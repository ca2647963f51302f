"""Faults on real processes with intervals of a second; tests/chaos has the same with intervals of minutes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest

from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from tests.kit.faults import processes as faults
from tests.kit.faults.processes import Pace
from tests.kit.name_server import wire
from tests.kit.name_server.process import RealNameServer, real_name_server
from tests.kit.name_server.view import look
from tests.kit.waiting import read_until

pytestmark = pytest.mark.e2e

FAST = Pace(interval=1.0, expiry=3.0)
REMOVED_SECONDS = 15.0
"""Ten times the usual time; the reason in the history shows whether it was the grace or the expiry."""


@pytest.mark.redis
async def test_a_killed_broker_is_out_of_the_routes_of_every_name_server_once(tmp_path: Path) -> None:
    settings = {"liveness.stream_grace_seconds": 1.0}
    async with (
        real_name_server(tmp_path / "n1", settings=settings) as first,
        real_name_server(tmp_path / "n2", node="node-2", settings=settings) as second,
    ):
        kills = await faults.killed_broker(
            [first, second], tmp_path, brokers=5, pace=FAST, settle=FAST.expiry + 0.5, patience=60
        )
    for kill in kills:
        assert kill.seconds <= REMOVED_SECONDS
        assert (kill.removals, kill.others) == (1, 4)


@pytest.mark.slow
async def test_a_broker_with_unary_heartbeats_expires_once_by_silence(tmp_path: Path) -> None:
    async with real_name_server(tmp_path) as server:
        kill = await faults.silent_broker(server, pace=FAST, patience=90)
    assert FAST.expiry <= kill.seconds <= FAST.expiry + REMOVED_SECONDS
    assert (kill.removals, kill.others) == (1, 0)


@pytest.mark.slow
async def test_a_stopped_agent_expires_by_silence_alone(tmp_path: Path) -> None:
    pace = Pace(interval=1.0, expiry=8.0)
    async with real_name_server(tmp_path / "n1") as server:
        suspect, gone = await asyncio.gather(
            faults.stopped_agent(server, tmp_path / "a", "a", pace, stop=4.5),
            faults.stopped_agent(server, tmp_path / "b", "b", pace, stop=11.0),
        )
    assert suspect == [("REGISTERED", ""), ("SUSPECTED", "SILENCE"), ("RECOVERED", "HEARTBEAT")]
    assert gone == [("REGISTERED", ""), ("SUSPECTED", "SILENCE"), ("EXPIRED", "SILENCE"), ("REGISTERED", "")]


async def test_a_name_server_stalled_for_longer_than_the_expiry_removes_no_broker(tmp_path: Path) -> None:
    async with real_name_server(tmp_path) as server:
        pause = await faults.stopped_name_server(server, brokers=10, pace=FAST, stop=5.0)
    assert (pause.removals, pause.known) == (0, 10)
    # It is due to wake within the first second, and a busy machine wakes it late.
    assert pause.seconds - 1.0 <= pause.event_seconds <= pause.seconds + 5.0
    # The metric counts each pause, those of a busy machine too.
    assert pause.event_seconds - 0.5 <= pause.metric_seconds <= pause.event_seconds + 10.0


@pytest.mark.slow
async def test_the_guard_keeps_a_cluster_that_lost_most_brokers_together_and_turns_off_when_they_are_back(
    tmp_path: Path,
) -> None:
    # All must be late before the first expires, and a busy machine spreads heartbeats over more than an interval.
    pace = faults.Pace(interval=1.0, expiry=8.0)
    async with real_name_server(tmp_path) as server:
        cuts = await faults.cut_clusters(server, brokers=10, cut={"few": 3, "most": 6, "all": 10}, pace=pace, stop=13.0)
    few, most, everyone = cuts["few"], cuts["most"], cuts["all"]
    assert (few.expired, few.states, few.guard_events, few.metric) == (3, {"UP": 7}, [], 0)
    assert (most.expired, most.states, most.metric) == (0, {"UP": 4, "PROTECTED": 6}, 1)
    assert (everyone.expired, everyone.states, everyone.metric) == (0, {"PROTECTED": 10}, 1)
    for cut in cuts.values():
        assert cut.states_afterwards == {"UP": 10}
    for cut in (most, everyone):
        assert cut.guard_events == ["GUARD_ON", "GUARD_OFF"]


async def register_many(server: RealNameServer, count: int, *, first: int = 0) -> None:
    async with grpc.aio.insecure_channel(server.addr) as channel:
        stub = RegistrationServiceStub(channel)
        for number in range(first, first + count):
            who = wire.identity(name=f"b{number}", addr=f"10.0.0.1:{10_000 + number}")
            await stub.RegisterBroker(wire.registration(wire.topic("orders"), who=who, labels={"note": "x" * 100}))


async def until_metric(server: RealNameServer, name: str, value: float) -> None:
    await read_until(lambda: server.metric(name), lambda found: found == value)


async def serves(server: RealNameServer, count: int) -> None:
    async with look(server.addr) as view:
        assert len(await view.brokers()) == count


async def test_a_disk_that_is_full_and_then_read_only_blocks_no_call_and_is_written_again_afterwards(
    tmp_path: Path,
) -> None:
    with faults.small_disk(tmp_path / "history", "256k") as disk:
        async with real_name_server(tmp_path) as server:
            filler = await asyncio.to_thread(faults.fill, disk)
            await register_many(server, 50)
            await until_metric(server, "pointsman_namesrv_history_failing", 1)
            await serves(server, 50)

            await asyncio.to_thread(faults.make_read_only, disk)
            await register_many(server, 50, first=50)
            await serves(server, 100)
            assert await server.metric("pointsman_namesrv_history_failing") == 1
            assert await server.metric("pointsman_namesrv_history_queue_rows") >= 100

            await asyncio.to_thread(faults.make_writable, disk, filler)
            await until_metric(server, "pointsman_namesrv_history_failing", 0)
            assert await server.metric("pointsman_namesrv_history_rows_dropped_total") == 0
            rows = server.events("REGISTERED")
    assert [row["broker_name"] for row in rows] == [f"b{number}" for number in range(100)]


async def test_a_quota_that_lets_no_file_grow_blocks_no_call(tmp_path: Path) -> None:
    async with real_name_server(tmp_path) as server:
        faults.refuse_to_write(server.pid, refuse=True)
        await register_many(server, 20)
        await until_metric(server, "pointsman_namesrv_history_failing", 1)
        await serves(server, 20)
        faults.refuse_to_write(server.pid, refuse=False)
        await until_metric(server, "pointsman_namesrv_history_failing", 0)
        assert await server.metric("pointsman_namesrv_history_rows_dropped_total") == 0
        assert len(server.events("REGISTERED")) == 20
