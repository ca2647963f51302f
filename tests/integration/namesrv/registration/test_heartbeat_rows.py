"""Rows of heartbeats in the history: when they end, the intervals, and how far the agent's clock is off."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import grpc

from pointsman.manual_clock import ManualClock
from pointsman.v1 import registration_service_pb2 as messages
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from tests.kit.history.rows import rows_in
from tests.kit.name_server import wire
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.peer import Peer
from tests.kit.refusal import refusal_of

EVERY = 25.0


async def heartbeats(
    clock: ManualClock, history: Path, *, ahead: tuple[timedelta | None, ...], pause: float = 0.0
) -> list[dict[str, Any]]:
    """Send heartbeats every 25 s on a stream, with a clock ahead by that much or none; stop and return the rows.

    ``pause``: seconds of silence before the last one.
    """
    async with (
        running_name_server(clock=clock, history=history) as server,
        grpc.aio.insecure_channel(server.addr) as channel,
    ):
        stub = RegistrationServiceStub(channel)
        generation = (await stub.RegisterBroker(wire.registration())).generation
        stream = stub.KeepAlive()
        for number, each in enumerate(ahead, 1):
            await clock.advance(EVERY + (pause if number == len(ahead) else 0.0))
            sent_at = 0 if each is None else round((clock.utc_now() + each).timestamp() * 1_000)
            await stream.write(messages.KeepAliveRequest(beat=wire.beat(generation, sent_at_millis=sent_at)))
            assert isinstance(await stream.read(), messages.KeepAliveResponse)
        stream.cancel()
    return [row for row in rows_in(history) if row["event"] == "HEARTBEATS"]


async def test_an_hour_is_one_row_and_the_stop_of_the_server_ends_the_next(clock: ManualClock, tmp_path: Path) -> None:
    hour, rest = await heartbeats(clock, tmp_path, ahead=(None,) * 150)

    assert (hour["detail"]["count"], rest["detail"]["count"]) == (143, 7)
    assert 3_600 <= hour["detail"]["seconds"] <= 3_605
    assert (hour["state"], hour["since_ms"], hour["planned"]) == ("UP", hour["detail"]["seconds"] * 1_000, False)


async def test_with_a_late_heartbeat_ten_minutes_are_one_row(clock: ManualClock, tmp_path: Path) -> None:
    (row,) = await heartbeats(clock, tmp_path, ahead=(None,) * 30, pause=50.0)

    assert (row["detail"]["count"], row["detail"]["max_ms"]) == (30, 75_000)


async def test_no_heartbeat_is_missing_of_a_broker_that_unregisters_every_fifty_minutes(
    clock: ManualClock, tmp_path: Path
) -> None:
    """From 22:50 UTC, over midnight."""
    clock.jump_wall_clock(timedelta(hours=22, minutes=50))
    answered = 0
    async with (
        running_name_server(clock=clock, history=tmp_path) as server,
        grpc.aio.insecure_channel(server.addr) as channel,
    ):
        stub = RegistrationServiceStub(channel)
        for _ in range(3):
            generation = (await stub.RegisterBroker(wire.registration())).generation
            for _ in range(120):
                await clock.advance(EVERY)
                beat = messages.HeartbeatRequest(beat=wire.beat(generation))
                answered += (await stub.Heartbeat(beat)).answer.status == messages.BEAT_STATUS_OK
            await stub.UnregisterBroker(wire.unregistration(wire.identity(), generation))
            await clock.advance(60.0)
    rows = [row for row in rows_in(tmp_path) if row["event"] == "HEARTBEATS"]

    assert answered == 360
    assert [row["detail"]["count"] for row in rows] == [120, 45, 75, 120]
    ends = [datetime.fromisoformat(row["event_at"]) for row in rows]
    begins = [end - timedelta(seconds=row["detail"]["seconds"]) for end, row in zip(ends, rows, strict=True)]
    days = [begin.day for begin in begins]
    assert days == [1, 1, 2, 2]
    assert all((end - timedelta(seconds=EVERY)).day == day for end, day in zip(ends, days, strict=True))


async def test_the_row_shows_how_far_the_agents_clock_is_ahead(clock: ManualClock, tmp_path: Path) -> None:
    seconds = timedelta(seconds=1)
    offsets = (59 * seconds, None, None, 60 * seconds, None, -90 * seconds)
    (row,) = await heartbeats(clock, tmp_path, ahead=offsets + (None,) * 17)

    # A heartbeat that was delayed by 150 s is the weakest evidence of the clock.
    assert row["detail"] == {
        "clock_ahead_ms": 60_000,
        "count": 23,
        "seconds": 575.0,
        "min_ms": 25_000,
        "max_ms": 25_000,
        "buckets": {"32000": 23},
    }


async def test_of_a_clock_that_is_behind_the_smallest_offset_is_recorded(clock: ManualClock, tmp_path: Path) -> None:
    offsets = (timedelta(hours=-3), timedelta(hours=-2), None)
    rows = await heartbeats(clock, tmp_path, ahead=offsets * 9)

    assert [row["detail"]["clock_ahead_ms"] for row in rows] == [-7_200_000]


async def test_an_agent_that_does_not_send_its_clock_has_none_in_the_history(
    clock: ManualClock, tmp_path: Path
) -> None:
    (row,) = await heartbeats(clock, tmp_path, ahead=(None,) * 30)

    assert sorted(row["detail"]) == ["buckets", "count", "max_ms", "min_ms", "seconds"]


async def test_a_clock_before_1970_is_refused_by_name(peer: Peer) -> None:
    generation = await peer.register()
    beat = wire.beat(generation, sent_at_millis=-1)
    refused = await refusal_of(peer.registration.Heartbeat(messages.HeartbeatRequest(beat=beat)))
    (violation,) = refused.details.violations

    assert (violation.field, violation.description) == ("beat.sent_at_millis", "is before 1970: -1")
