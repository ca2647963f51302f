"""The name server itself is stopped, flooded with nonsense and refused by its disk."""

from __future__ import annotations

import asyncio
import math
import os
import time
from pathlib import Path

import grpc
import pytest
from hypothesis import settings

from pointsman.v1.admin_service_pb2 import SetDrainRequest
from pointsman.v1.admin_service_pb2_grpc import AdminServiceStub
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from pointsman.v1.route_service_pb2 import GetTopicRouteRequest
from pointsman.v1.route_service_pb2_grpc import RouteServiceStub
from tests.chaos.conftest import Report
from tests.kit.faults import hostile
from tests.kit.faults import processes as faults
from tests.kit.faults.processes import Pace
from tests.kit.name_server import wire
from tests.kit.name_server.process import RealNameServer, real_name_server

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

HANDSHAKE_SECONDS = 60.0
"""How long gRPC bears a connection that does not get to its first frame; measured, it is not documented."""
MOST_GROWTH = 32 * 1024 * 1024
TEN_THOUSAND = settings(max_examples=10_000, stateful_step_count=1, derandomize=False)


async def test_a_name_server_stopped_for_150_seconds_expires_no_broker(tmp_path: Path, report: Report) -> None:
    async with real_name_server(tmp_path) as server:
        pause = await faults.stopped_name_server(server, brokers=50, pace=Pace(interval=30.0, expiry=120.0), stop=150.0)
    report(str(pause))
    assert (pause.removals, pause.known) == (0, 50)
    assert pause.event_seconds == pytest.approx(150.0, abs=5.0)
    assert pause.metric_seconds == pytest.approx(pause.event_seconds, abs=1.0)


async def put_canary(server: RealNameServer) -> None:
    who = wire.identity(name="canary", cluster="canary", addr="10.9.9.9:1")
    async with grpc.aio.insecure_channel(server.addr) as channel:
        request = wire.registration(wire.topic("canary"), who=who, heartbeat=300, expiry=3_600)
        await RegistrationServiceStub(channel).RegisterBroker(request)


async def test_ten_thousand_hostile_frames_cost_their_own_calls_and_no_memory(tmp_path: Path, report: Report) -> None:
    async with real_name_server(tmp_path) as server:
        await put_canary(server)
        sizes: list[int] = []

        def hammered() -> dict[str, int]:
            with grpc.insecure_channel(server.addr) as channel:
                admin, route = AdminServiceStub(channel), RouteServiceStub(channel)

                def after_batch() -> None:
                    admin.SetDrain(SetDrainRequest(draining=False, by="test"), timeout=5)  # a frame may have drained it
                    assert route.GetTopicRoute(GetTopicRouteRequest(topic="canary"), timeout=5).route.broker_datas
                    sizes.append(server.rss_bytes())

                answers = hostile.hammer(server.addr, batch=500, after_batch=after_batch, profile=TEN_THOUSAND)
            codes: dict[str, int] = {}
            for (_, code), count in answers.items():
                codes[code] = codes.get(code, 0) + count
            return codes

        began = time.monotonic()
        codes = await asyncio.to_thread(hammered)
        grown = sizes[-1] - sizes[len(sizes) // 4]
        internal_errors = [line for line in server.said() if line["level"] in {"ERROR", "CRITICAL"}]
        report(f"{codes}, {grown / 1024:.0f} KiB grown, {time.monotonic() - began:.0f} s")
        assert server.is_alive
    assert internal_errors == []
    assert sum(codes.values()) >= 10_000
    assert grown < MOST_GROWTH


async def test_connections_that_do_not_speak_grpc_leave_nothing_behind(tmp_path: Path, report: Report) -> None:
    async with real_name_server(tmp_path) as server:
        await put_canary(server)
        async with grpc.aio.insecure_channel(server.addr) as channel:
            route = RouteServiceStub(channel)

            async def assault(seed: int) -> None:
                for number, opening in enumerate(hostile.wrong_bytes(seed, 150)):
                    for addr in (server.addr, server.monitoring_addr):
                        await hostile.send_bytes(addr, opening, wait=0.005)
                    if number % 50 == 0:
                        await route.GetTopicRoute(GetTopicRouteRequest(topic="canary"), timeout=5)

            await assault(1)
            open_files, size = _open_files(server), server.rss_bytes()
            await assault(2)
            await assault(3)
            async with asyncio.timeout(20):
                while _open_files(server) > open_files + 5:  # noqa: ASYNC110  # another process closes them
                    await asyncio.sleep(0.1)
            grown = server.rss_bytes() - size
            report(f"{grown / 1024:.0f} KiB and {_open_files(server) - open_files} open files more after two thirds")
            assert grown < MOST_GROWTH
            assert await server.metric("pointsman_namesrv_ready") == 1


def _open_files(server: RealNameServer) -> int:
    return len(os.listdir(f"/proc/{server.pid}/fd"))


async def trickled(
    server: RealNameServer, openings: dict[str, tuple[str, bytes]], *, seconds: float
) -> dict[str, float]:
    """Open 40 connections of each kind; return the latest end of each (infinite: never), and the slowest route."""
    await put_canary(server)
    async with grpc.aio.insecure_channel(server.addr) as channel:
        route = RouteServiceStub(channel)
        slow = {
            kind: [asyncio.create_task(hostile.trickle(addr, opening, seconds=seconds)) for _ in range(40)]
            for kind, (addr, opening) in openings.items()
        }
        slowest = 0.0
        while not all(task.done() for tasks in slow.values() for task in tasks):
            began = time.monotonic()
            await route.GetTopicRoute(GetTopicRouteRequest(topic="canary"), timeout=5)
            slowest = max(slowest, time.monotonic() - began)
            await asyncio.sleep(0.05)
    ends = {kind: max(task.result() or math.inf for task in tasks) for kind, tasks in slow.items()}
    return ends | {"slowest route": slowest}


async def test_connections_that_trickle_are_closed_and_slow_down_no_other(tmp_path: Path, report: Report) -> None:
    async with real_name_server(tmp_path) as server:
        openings = {
            "stalls in the preface": (server.addr, hostile.PREFACE[:10]),
            "no frame after the preface": (server.addr, hostile.PREFACE),
            "nonsense": (server.addr, hostile.PREFACE + b"\0" * 200),
        }
        found = await trickled(server, openings, seconds=HANDSHAKE_SECONDS + 20)
    report(str({what: round(seconds, 3) for what, seconds in found.items()}))
    assert found.pop("slowest route") < 1.0
    assert max(found.values()) < HANDSHAKE_SECONDS + 10


async def test_a_scrape_that_trickles_is_hung_up_on(tmp_path: Path, report: Report) -> None:
    async with real_name_server(tmp_path) as server:
        openings = {"headers": (server.monitoring_addr, b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 40)}
        found = await trickled(server, openings, seconds=60.0)
    report(str({what: round(seconds, 3) for what, seconds in found.items()}))
    assert found["headers"] < 60.0
