"""Lost brokers over the wire and over restarts: history rows, snapshot, eviction, maintenance windows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.json_format import MessageToDict

from pointsman.manual_clock import ManualClock
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1.registration_service_pb2 import KeepAliveRequest
from pointsman_namesrv.app import NameServerApp
from pointsman_report.cli import main
from tests.kit.history.rows import rows_in
from tests.kit.name_server import wire
from tests.kit.name_server.peer import Peer, serving
from tests.kit.refusal import refusal_of

A = wire.identity("a", addr="a:10911")
LOST = 130.0
"""Longer than an expiry and a sweep."""


@pytest.fixture
def history(tmp_path: Path) -> Path:
    return tmp_path / "history"


@asynccontextmanager
async def run(clock: ManualClock, history: Path) -> AsyncIterator[tuple[NameServerApp, Peer]]:
    """One run of a name server with its snapshot."""
    state = history.with_name("state")
    async with serving(clock=clock, history=history, snapshot=state) as (app, peer):
        await app.parts.memory.until_read()
        yield app, peer


async def register(peer: Peer) -> int:
    return await peer.register("orders", who=A, zone="z1", host="h1", incarnation="i1")


async def announce(peer: Peer, seconds: int | None, broker_name: str = "a") -> None:
    window = admin.SetMaintenanceRequest(cluster="c1", broker_name=broker_name, by="ann")
    if seconds is not None:
        window.duration.CopyFrom(Duration(seconds=seconds))
    await peer.admin.SetMaintenance(window)


def evict() -> admin.EvictBrokerRequest:
    return admin.EvictBrokerRequest(cluster="c1", broker_name="a", by="ann")


def absences_in(history: Path) -> list[tuple[Any, ...]]:
    """The rows about the broker's absence in the order of the runs: event, reason, planned, since, and details."""
    files = sorted(map(str, history.rglob("*.jsonl*")))
    assert main(["validate", *files]) == 0
    rows = [row for row in rows_in(history) if row["broker_name"] == "a" and row["state"] == "GONE"]
    rows.sort(key=lambda row: row["event_at"])
    assert {(row["zone"], row["host"], row["incarnation"]) for row in rows} == {("z1", "h1", "i1")}
    return [(row["event"], row["reason"], row["planned"], round(row["since_ms"] / 1_000)) for row in rows]


async def test_a_lost_broker_is_down_over_restarts_until_it_is_evicted(clock: ManualClock, history: Path) -> None:
    async with run(clock, history) as (_, peer):
        await register(peer)
        await clock.advance(LOST)
    clock.now += 3_600.0
    async with run(clock, history) as (_, peer):
        await clock.advance(10.0)
        request = admin.ListBrokerEventsRequest(broker_name="a", limit=10)
        (event,) = (await peer.admin.ListBrokerEvents(request)).events
        assert (event.event, event.state, event.planned) == ("CHECKPOINT", "GONE", False)
        assert 3_600 < event.state_for.seconds < 3_620
        assert MessageToDict(event.detail)["gone_reason"] == "SILENCE"
        assert (await peer.admin.EvictBroker(evict())).identity == A
        assert (await refusal_of(peer.admin.EvictBroker(evict()))).details.code == "BROKER_UNKNOWN"
    async with run(clock, history):
        await clock.advance(10.0)

    (lost, checkpoint, evicted) = absences_in(history)
    assert lost == ("EXPIRED", "SILENCE", False, 0)
    assert checkpoint[:3] == ("CHECKPOINT", "START", False)
    assert 3_600 < checkpoint[3] < 3_620
    assert evicted == ("UNREGISTERED", "ADMIN", True, 0)


async def test_checkpoints_of_a_day_name_lost_brokers_after_the_registered_ones(
    clock: ManualClock, history: Path
) -> None:
    async with run(clock, history) as (_, peer):
        await register(peer)
        await clock.advance(LOST)
        other = wire.registration(wire.topic("orders"), who=wire.identity("b", addr="b:10911"))
        await peer.registration.RegisterBroker(other)
        clock.jump_wall_clock(timedelta(days=1))
        await clock.advance(2.0)

    rows = [row for row in rows_in(history) if row["event"] == "CHECKPOINT"]
    numbers = [(row["reason"], row["detail"]["i"], row["detail"]["n"]) for row in rows]
    assert [(row["broker_name"], row["state"]) for row in rows] == [("b", "UP"), ("a", "GONE")]
    assert numbers == [("DAY", 1, 2), ("DAY", 2, 2)]


@pytest.mark.parametrize("ends", ["in time", "early", "after a restart in it", "during a restart", "before a restart"])
async def test_an_absence_that_outlives_its_window_is_an_outage_from_its_end(
    clock: ManualClock, history: Path, ends: str
) -> None:
    async with run(clock, history) as (_, peer):
        await register(peer)
        await announce(peer, 600)
        await clock.advance(LOST)
        if ends in {"in time", "before a restart"}:
            await clock.advance(600.0)
        elif ends == "early":
            await announce(peer, None)
            await clock.advance(5.0)
    if "restart" in ends:
        clock.now += 900.0 if ends == "during a restart" else 60.0
        async with run(clock, history):
            await clock.advance(600.0)

    rows = absences_in(history)
    assert rows[0] == ("EXPIRED", "SILENCE", True, 0)
    assert ("EXPIRED", "SILENCE", False, 0) in rows
    assert [row[0] for row in rows].count("EXPIRED") == 2
    # A row that repeats the state is planned only before the end of the window.
    planned = [row[2] for row in rows]
    assert planned == sorted(planned, reverse=True)
    if ends == "after a restart in it":
        assert [row[:3] for row in rows] == [
            ("EXPIRED", "SILENCE", True),
            ("CHECKPOINT", "START", True),
            ("EXPIRED", "SILENCE", False),
        ]
    (outlived,) = [row for row in rows_in(history) if "outlived_window" in (row["detail"] or {})]
    assert outlived["interval_ms"] is None
    assert outlived["detail"]["absent_seconds"] > 0


async def test_a_broker_that_is_silent_on_an_open_stream_is_said_to_hang(clock: ManualClock, history: Path) -> None:
    async with run(clock, history) as (_, peer):
        generation = await register(peer)
        stream = peer.registration.KeepAlive()
        await stream.write(KeepAliveRequest(beat=wire.beat(generation, who=A)))
        await stream.read()
        await clock.advance(80.0)
        (status,) = (await peer.admin.ListBrokers(admin.ListBrokersRequest())).brokers
        assert (status.reason, status.stream_open, status.self_registered) == ("SILENCE", True, False)
        await clock.advance(60.0)
        stream.cancel()

    rows = [row for row in rows_in(history) if row["reason"] == "SILENCE"]
    assert [(row["event"], row["detail"].get("stream")) for row in rows] == [("SUSPECTED", "open"), ("EXPIRED", "open")]
