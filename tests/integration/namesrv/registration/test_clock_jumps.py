"""The wall clock jumps by hours and days: no broker expires, and each event has both clocks."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import grpc
import pytest

from pointsman.manual_clock import ManualClock
from pointsman.v1.registration_service_pb2 import HeartbeatRequest
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from tests.kit.history.rows import rows_in
from tests.kit.name_server import wire
from tests.kit.name_server.in_process import running_name_server

JUMPS = (timedelta(hours=1), timedelta(hours=-1), timedelta(days=1), timedelta(days=-1))


@pytest.mark.parametrize("jump", JUMPS, ids=str)
async def test_a_jump_expires_no_broker_and_rows_distinguish_it_from_time_that_passed(
    clock: ManualClock, tmp_path: Path, jump: timedelta
) -> None:
    async with running_name_server(clock=clock, history=tmp_path) as server:
        async with grpc.aio.insecure_channel(server.addr) as channel:
            stub = RegistrationServiceStub(channel)
            registered = await stub.RegisterBroker(wire.registration(incarnation="r1"))
            clock.jump_wall_clock(jump)
            await clock.advance(30)
            answer = await stub.Heartbeat(HeartbeatRequest(beat=wire.beat(registered.generation)))
            assert answer.answer.status == 1
            await stub.RegisterBroker(wire.registration(incarnation="r2"))
            clock.jump_wall_clock(-2 * jump)
            await clock.advance(119)
        assert [replica.state.phase.value for _, replica in server.core.replicas()] == ["SUSPECT"]

    rows = rows_in(tmp_path)
    by_event = {row["event"]: row for row in rows}
    assert not {"EXPIRED", "UNREGISTERED"} & by_event.keys()
    first, second = by_event["REGISTERED"], by_event["RESTARTED"]
    walls = [datetime.fromisoformat(row["event_at"]) for row in (first, second)]
    assert walls[1] - walls[0] == jump + timedelta(seconds=30)
    assert second["uptime_ms"] - first["uptime_ms"] == 30_000
    assert second["interval_ms"] == 0
    assert sorted(row["seq"] for row in rows) == list(range(1, len(rows) + 1))
