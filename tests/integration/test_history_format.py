"""What the name server writes is what the public schema says, and what the Spark jobs read."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import grpc

from pointsman.v1.broker_pb2 import PROBE_STATUS_FAILING
from pointsman.v1.registration_service_pb2 import HeartbeatRequest
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from spark_jobs.cli import main
from tests.fakes import wire
from tests.fakes.manual_clock import ManualClock
from tests.fakes.name_server import running_name_server


async def test_every_row_that_a_name_server_writes_keeps_the_public_schema(clock: ManualClock, tmp_path: Path) -> None:
    async with running_name_server(clock=clock, history=tmp_path) as server:
        async with grpc.aio.insecure_channel(server.addr) as channel:
            stub = RegistrationServiceStub(channel)
            await stub.RegisterBroker(wire.registration(wire.topic("orders"), zone="z1", incarnation="r1"))
            generation = (await stub.RegisterBroker(wire.registration(incarnation="r2"))).generation
            await clock.advance(50)
            for probe in (0, PROBE_STATUS_FAILING, 0):
                beat = wire.beat(generation, probe=probe)  # type: ignore[arg-type]  # 0 is UNSPECIFIED
                await stub.Heartbeat(HeartbeatRequest(beat=beat))
        clock.jump_wall_clock(timedelta(days=1))
        await clock.advance(300)
    files = sorted(map(str, tmp_path.rglob("*.jsonl.gz")))  # noqa: ASYNC240  # nothing else runs

    assert len(files) == 2
    assert main(["validate", *files]) == 0
