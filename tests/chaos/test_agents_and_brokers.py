"""Brokers and agents that are killed, stopped and cut off, at the intervals of production."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest

from pointsman.v1.registration_service_pb2 import KeepAliveRequest
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from tests.chaos.conftest import Report
from tests.kit.faults import processes as faults
from tests.kit.faults.cut_proxy import cut_proxy
from tests.kit.faults.processes import Pace
from tests.kit.name_server import wire
from tests.kit.name_server.process import RealNameServer, real_name_server
from tests.kit.name_server.view import of_broker

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

DEFAULT = Pace(interval=30.0, expiry=120.0)
SLOW = Pace(interval=100.0, expiry=600.0)
BRISK = Pace(interval=5.0, expiry=15.0)
GRACE_SECONDS = 10.0

REGISTERED = ("REGISTERED", "")
SUSPECTED = ("SUSPECTED", "SILENCE")
RECOVERED = ("RECOVERED", "HEARTBEAT")
EXPIRED = ("EXPIRED", "SILENCE")


async def test_a_broker_killed_with_its_agent_is_removed_after_the_grace_on_every_name_server(
    tmp_path: Path, report: Report
) -> None:
    async with (
        real_name_server(tmp_path / "n1") as first,
        real_name_server(tmp_path / "n2", node="node-2") as second,
    ):
        kills = await faults.killed_broker(
            [first, second], tmp_path, brokers=10, pace=BRISK, settle=BRISK.expiry + 1, patience=30
        )
    report(f"out of the routes after {[kill.seconds for kill in kills]} s")
    for kill in kills:
        assert GRACE_SECONDS <= kill.seconds <= GRACE_SECONDS + faults.SWEEP_SECONDS
        assert (kill.removals, kill.others) == (1, 9)


async def test_a_broker_with_unary_heartbeats_is_removed_after_its_expiry(tmp_path: Path, report: Report) -> None:
    async with real_name_server(tmp_path) as server:
        kill = await faults.silent_broker(server, pace=BRISK, patience=60)
    report(f"out of the routes {kill.seconds} s after its last heartbeat")
    assert BRISK.expiry <= kill.seconds <= BRISK.expiry + faults.SWEEP_SECONDS
    assert (kill.removals, kill.others) == (1, 0)


async def mute_after_a_beat(server: RealNameServer, pace: Pace, *, seconds: float) -> list[tuple[str, str]]:
    """Send one heartbeat, then respond to nothing, not even to gRPC pings: an agent that is stopped at that moment."""
    who = wire.identity(name="mute", addr="10.0.0.7:1")
    async with (
        grpc.aio.insecure_channel(server.addr, options=[("grpc.use_local_subchannel_pool", 1)]) as direct,
        cut_proxy(server.addr) as proxy,
        grpc.aio.insecure_channel(proxy.addr) as channel,
    ):
        request = wire.registration(who=who, heartbeat=int(pace.interval), expiry=int(pace.expiry))
        generation = (await RegistrationServiceStub(direct).RegisterBroker(request)).generation
        await channel.channel_ready()
        stream = RegistrationServiceStub(channel).KeepAlive()
        await stream.wait_for_connection()
        proxy.deafen()
        await stream.write(KeepAliveRequest(beat=wire.beat(generation, who=who)))
        await asyncio.sleep(seconds)
        stream.cancel()
    return of_broker(server, "mute")


async def test_a_stopped_agent_expires_by_silence_and_never_by_the_transport(tmp_path: Path, report: Report) -> None:
    async with real_name_server(tmp_path / "n1") as server:
        paused = {60.0: DEFAULT, 119.0: DEFAULT, 125.0: DEFAULT, 300.0: SLOW}
        *found, mute = await asyncio.gather(
            *(
                faults.stopped_agent(
                    server, tmp_path / f"a{stop:g}", f"a{stop:g}", pace, stop=stop, beats=2 if pace is DEFAULT else 1
                )
                for stop, pace in paused.items()
            ),
            mute_after_a_beat(server, SLOW, seconds=1.7 * SLOW.interval),
        )
    for (stop, pace), events in zip(paused.items(), found, strict=True):
        report(f"stopped for {stop:g} s at {pace.interval:g}/{pace.expiry:g} s: {events}")
    report(f"silent from the ping on at {SLOW.interval:g}/{SLOW.expiry:g} s: {mute}")
    assert found[0] == [REGISTERED, ("LATE_HEARTBEAT", "")] or found[0] == [REGISTERED]
    assert found[1] == [REGISTERED, SUSPECTED, RECOVERED]
    assert found[2] == [REGISTERED, SUSPECTED, EXPIRED, REGISTERED]
    assert found[3] == [REGISTERED, SUSPECTED, RECOVERED]
    assert mute == [REGISTERED]


async def test_the_guard_keeps_a_cluster_that_is_cut_off_for_five_minutes(tmp_path: Path, report: Report) -> None:
    async with real_name_server(tmp_path) as server:
        cuts = await faults.cut_clusters(
            server,
            brokers=20,
            cut={"third": 6, "most": 12, "all": 20},
            pace=Pace(interval=10.0, expiry=40.0),
            stop=300.0,
        )
    for cluster, cut in cuts.items():
        report(f"{cluster}: {cut}")
    third, most, everyone = cuts["third"], cuts["most"], cuts["all"]
    assert (third.expired, third.states, third.guard_events, third.metric) == (6, {"UP": 14}, [], 0)
    assert (most.expired, most.states, most.metric) == (0, {"UP": 8, "PROTECTED": 12}, 1)
    assert (everyone.expired, everyone.states, everyone.metric) == (0, {"PROTECTED": 20}, 1)
    assert all(cut.guard_events == ["GUARD_ON", "GUARD_OFF"] for cut in (most, everyone))
    assert all(cut.states_afterwards == {"UP": 20} for cut in cuts.values())
