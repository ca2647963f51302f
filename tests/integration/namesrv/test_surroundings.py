"""Health, reflection, metrics, history and administration of a running server, and how it stops."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status

from pointsman.manual_clock import ManualClock
from pointsman.v1.admin_service_pb2 import ListBrokerEventsRequest, ListBrokersRequest
from pointsman.v1.broker_pb2 import BROKER_STATE_SUSPECT
from pointsman.wire.error_details import read_status
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.config import (
    HistoryConfig,
    MonitoringConfig,
    NameServerConfig,
    RemotingConfig,
    ServerConfig,
    SnapshotConfig,
)
from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.rpc import inspection
from pointsman_namesrv.rpc.node_server import NodeServer
from tests.kit.chosen_listener import chosen_listener
from tests.kit.history.rows import rows_in
from tests.kit.name_server import wire
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.peer import Peer, peer_of, serving
from tests.kit.waiting import eventually


def rows(history: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(history.glob("raw/dt=*/*.jsonl*")):
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        yield from map(json.loads, raw.splitlines())


async def get(url: str) -> tuple[int, str]:
    def fetch() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(url, timeout=60) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return await asyncio.to_thread(fetch)


async def test_health_is_serving_in_total_and_for_each_service(peer: Peer) -> None:
    stub = health_pb2_grpc.HealthStub(peer.channel)
    for service in ("", "pointsman.v1.RouteService", "pointsman.v1.RegistrationService", "pointsman.v1.AdminService"):
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_reflection_names_the_services(peer: Peer) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(peer.channel)
    call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
    answer = await call.read()
    names = {service.name for service in answer.list_services_response.service}
    assert {"pointsman.v1.RouteService", "pointsman.v1.RegistrationService", "pointsman.v1.AdminService"} <= names
    call.cancel()


async def test_the_health_of_a_service_that_is_not_served_cannot_be_watched(server: NameServerApp, peer: Peer) -> None:
    stub = health_pb2_grpc.HealthStub(peer.channel)
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await stub.Watch(health_pb2.HealthCheckRequest(service="n" * 100)).read()
    assert error.value.code() is grpc.StatusCode.NOT_FOUND
    assert not server.server._health._server_watchers


@pytest.mark.parametrize("kind", ["health", "reflection"])
async def test_streams_of_health_and_reflection_are_limited_and_one_peer_cannot_use_all(
    server: NameServerApp, peer: Peer, kind: str
) -> None:
    server.server._standard_streams.bound.bound = 3
    question = reflection_pb2.ServerReflectionRequest(list_services="")

    async def opened(channel: grpc.aio.Channel) -> grpc.aio.Call:
        call: Any
        if kind == "health":
            call = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=""))
        else:
            call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
            await call.write(question)
        assert await call.read()
        return call  # type: ignore[no-any-return]

    calls = [await opened(peer.channel) for _ in range(3)]
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await opened(peer.channel)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    details = read_status(rpc_status.from_call(refused.value))
    assert (details.code, details.facts["limit"]) == ("LIMIT_EXCEEDED", "health_and_reflection_streams")

    own_connection = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(server.addr, options=own_connection) as channel:
        calls.append(await opened(channel))
        assert await calls[2].code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert not calls[1].done()
        for call in calls:
            call.cancel()
        await eventually(lambda: not server.server._standard_streams.bound.total, seconds=10)
    count = server.metrics.registry.get_sample_value(
        "pointsman_namesrv_limits_exceeded_total", {"limit": "health_and_reflection_streams"}
    )
    assert count == 2


async def test_metrics_and_health_over_http(server: NameServerApp, peer: Peer, clock: ManualClock) -> None:
    await peer.register("orders")
    await clock.advance(5)
    base = f"http://127.0.0.1:{server.monitoring_port}"

    status, body = await get(f"{base}/healthz")
    assert (status, json.loads(body)["healthy"]) == (200, True)
    status, metrics = await get(f"{base}/metrics")
    assert status == 200
    assert 'pointsman_namesrv_brokers{cluster="c1",role="master",state="UP"} 1.0' in metrics
    assert "pointsman_namesrv_topics 1.0" in metrics
    assert 'pointsman_namesrv_events_total{event="REGISTERED",reason=""} 1.0' in metrics
    assert (await get(f"{base}/else"))[0] == 404


async def test_brokers_are_listed_with_their_liveness(peer: Peer, clock: ManualClock) -> None:
    await peer.registration.RegisterBroker(
        wire.registration(wire.topic("orders"), zone="z1", host="h1", labels={"team": "x"}, incarnation="r1")
    )
    await clock.advance(80)
    listed = await peer.admin.ListBrokers(ListBrokersRequest())
    (broker,) = listed.brokers
    assert (broker.state, broker.zone, broker.host, broker.labels["team"]) == (BROKER_STATE_SUSPECT, "z1", "h1", "x")
    assert (broker.topic_count, broker.brings_topics, broker.silence.seconds) == (1, True, 80)
    assert broker.registered_at.ToDatetime() + timedelta(seconds=80) == clock.utc_now().replace(tzinfo=None)
    assert not (await peer.admin.ListBrokers(ListBrokersRequest(broker_name="b"))).brokers


async def test_a_page_of_brokers_ends_before_it_outgrows_a_message(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "MAX_PAGE_BYTES", 500)
    for number in range(3):
        who = wire.identity(name=f"b{number}", addr=f"h:{number + 1}")
        await peer.register(who=who, labels={"big": "x" * 128}, zone="z" * 1_000)
    first = await peer.admin.ListBrokers(ListBrokersRequest())
    assert [broker.identity.broker_name for broker in first.brokers] == ["b0"]
    assert first.next_page_token == "c1/b0/0"


async def test_brokers_come_in_sorted_pages(peer: Peer) -> None:
    full = {f"{i:032}": "x" * 128 for i in range(32)}
    for number in range(12):
        who = wire.identity(name=f"b{number % 6}", broker_id=10 - number // 6, addr=f"h:{number + 1}")
        await peer.register(who=who, labels=full)
    seen, token, pages = [], "", 0
    while pages == 0 or token:
        page = await peer.admin.ListBrokers(ListBrokersRequest(page_size=5, page_token=token))
        seen += [(broker.identity.broker_name, broker.identity.broker_id) for broker in page.brokers]
        token, pages = page.next_page_token, pages + 1
    assert pages == 3
    assert seen == sorted(seen)
    assert len(seen) == len(set(seen)) == 12
    for bad in (ListBrokersRequest(page_token="nonsense"), ListBrokersRequest(page_size=1_001)):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await peer.admin.ListBrokers(bad)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_the_last_events_of_a_broker_show_why_it_was_removed(peer: Peer, clock: ManualClock) -> None:
    await peer.register()
    await clock.advance(130)
    events = (await peer.admin.ListBrokerEvents(ListBrokerEventsRequest(broker_name="a"))).events
    assert [(e.event, e.reason) for e in events] == [
        ("REGISTERED", ""),
        ("SUSPECTED", "SILENCE"),
        ("EXPIRED", "SILENCE"),
    ]
    assert events[-1].interval.seconds == 125
    last = await peer.admin.ListBrokerEvents(ListBrokerEventsRequest(broker_name="a", limit=1))
    assert [e.event for e in last.events] == ["EXPIRED"]


async def test_the_history_holds_every_event_once_and_in_order(tmp_path: Path, clock: ManualClock) -> None:
    async with running_name_server(clock=clock, history=tmp_path) as server:
        async with peer_of(server.addr) as peer:
            await peer.register(zone="z1", incarnation="r1")
        await clock.advance(130)
    written = list(rows(tmp_path))

    assert [row["event"] for row in written] == [
        "NAMESRV_STARTED",
        "NAMESRV_READY",
        "REGISTERED",
        "TOPICS",
        "NAMESRV_ALIVE",
        "SUSPECTED",
        "NAMESRV_ALIVE",
        "EXPIRED",
        "NAMESRV_STOPPED",
    ]
    assert [row["seq"] for row in written] == list(range(1, 10))
    assert written[0]["detail"]["alive_seconds"] == 60.0
    assert written[6]["uptime_ms"] - written[4]["uptime_ms"] == 60_000
    assert len({(row["node"], row["boot_id"]) for row in written}) == 1
    expired = written[7]
    assert (expired["cluster"], expired["broker_name"], expired["broker_id"]) == ("c1", "a", 0)
    assert (expired["reason"], expired["interval_ms"], expired["incarnation"]) == ("SILENCE", 125_000, "r1")
    assert expired["event_at"] == "2026-01-01T00:02:05.000Z"


async def test_a_wall_clock_that_jumps_expires_no_broker(server: NameServerApp, peer: Peer, clock: ManualClock) -> None:
    await peer.register()
    for jump in (timedelta(hours=1), timedelta(days=-2), timedelta(days=1)):
        clock.jump_wall_clock(jump)
        await clock.advance(15)
    assert [replica.state.phase for _, replica in server.core.replicas()] == ["UP"]


async def test_a_disk_error_blocks_no_call_and_is_counted(tmp_path: Path, clock: ManualClock) -> None:
    async with running_name_server(clock=clock, history=tmp_path) as server:
        await asyncio.to_thread(_replace_by_a_file, tmp_path / "raw")
        async with peer_of(server.addr) as peer:
            await peer.register()
            await eventually(server.parts.recorder.problems)
    lost = server.metrics.registry.get_sample_value("pointsman_namesrv_history_rows_dropped_total", {"cause": "disk"})
    assert lost == server.parts.recorder.dropped > 0


async def test_after_lost_rows_the_states_are_written_again(tmp_path: Path, clock: ManualClock) -> None:
    async with serving(clock=clock, history=tmp_path) as (server, peer):
        for name in ("a", "b"):
            await peer.registration.RegisterBroker(
                wire.registration(wire.topic("orders"), who=wire.identity(name=name, addr=f"{name}:1"))
            )
        await _lose_a_row(server)
        await clock.advance(20)
    assert _repeated(tmp_path) == [("a", "UP", {"i": 1, "n": 2}), ("b", "UP", {"i": 2, "n": 2})]


async def test_rows_lost_again_and_again_repeat_the_states_once_a_minute(tmp_path: Path, clock: ManualClock) -> None:
    async with serving(clock=clock, history=tmp_path) as (server, peer):
        await peer.register()
        for _ in range(7):
            await _lose_a_row(server)
            await clock.advance(10)
    assert len(_repeated(tmp_path)) == 2


async def _lose_a_row(server: NameServerApp) -> None:
    dropped = server.parts.recorder.dropped
    server.parts.recorder.record([Event(kind=EventKind.NAMESRV_ALIVE, detail={"no JSON": object()})])
    await eventually(lambda: server.parts.recorder.dropped != dropped)


def _repeated(folder: Path) -> list[tuple[object, ...]]:
    rows = (row for row in rows_in(folder) if row["reason"] == "DROPPED")
    return [(row["broker_name"], row["state"], row["detail"]) for row in rows]


def _replace_by_a_file(folder: Path) -> None:
    # Root may write anywhere, so remove the folder instead of its permissions.
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()
    folder.write_text("in the way")


async def test_a_name_server_that_is_cancelled_while_it_starts_leaves_nothing_open(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After any number of turns of the event loop; the test's own check finds tasks, threads, sockets and files."""
    for turns in range(100):
        app = NameServerApp(
            NameServerConfig(
                server=ServerConfig(listen="127.0.0.1:0", listener=chosen_listener()),
                monitoring=MonitoringConfig(listen="127.0.0.1:0"),
                remoting=RemotingConfig(listen="127.0.0.1:0"),
                history=HistoryConfig(directory=str(tmp_path / "history")),
                snapshot=SnapshotConfig(directory=str(tmp_path / "state")),
            ),
            version="test",
        )
        running = asyncio.create_task(app.run(asyncio.Event()))
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])
        closed = set(range(256)) - {int(name) for name in os.listdir("/proc/self/fd")}
        assert not any(asyncio.get_running_loop().remove_reader(number) for number in closed)
        if app.started.is_set():
            break
    assert app.started.is_set()
    assert [each.message for each in caplog.records if each.levelno >= logging.ERROR] == []


async def test_a_step_of_the_stop_that_fails_skips_no_other_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = NodeServer.stop

    async def fail(server: NodeServer, grace: float) -> None:
        await stopped(server, grace)
        raise ValueError("no such luck")

    monkeypatch.setattr(NodeServer, "stop", fail)
    with pytest.raises(ExceptionGroup) as group:
        async with running_name_server(history=tmp_path / "history", snapshot=tmp_path / "state"):
            pass
    assert group.group_contains(ValueError, match="no such luck")
    assert [row["event"] for row in rows(tmp_path / "history")][-1] == "NAMESRV_STOPPED"
    monkeypatch.undo()
    async with running_name_server(history=tmp_path / "history", snapshot=tmp_path / "state"):
        pass
