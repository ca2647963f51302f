"""A restarted server answers from its history: over midnight, with a clock set back, on a full disk, while it reads."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pointsman.manual_clock import ManualClock
from pointsman.v1.admin_service_pb2 import (
    EARLIER_RUNS_OFF,
    EARLIER_RUNS_READ,
    EARLIER_RUNS_READING,
    ListBrokerEventsRequest,
    ListBrokerEventsResponse,
    ListFlappingRequest,
)
from pointsman.v1.registration_service_pb2 import HeartbeatRequest
from pointsman.v1.route_service_pb2 import GetTopicRouteRequest
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.history import startup_memory
from pointsman_namesrv.history.newest_rows import Question
from tests.kit.ctl.command import ctl
from tests.kit.faults.mounted_disk import mounted
from tests.kit.history.rows import rows_in
from tests.kit.http_answer import ask
from tests.kit.name_server import wire
from tests.kit.name_server.peer import Peer, serving
from tests.kit.waiting import eventually, read_until

A = wire.identity("a")


class Node:
    """A name server that is restarted at its address, with its history and snapshot."""

    def __init__(self, clock: ManualClock, folder: Path) -> None:
        self.clock = clock
        self.folder = folder
        self.history = folder / "history"
        self._listen = "127.0.0.1:0"

    @asynccontextmanager
    async def running(self, **settings: Any) -> AsyncIterator[tuple[NameServerApp, Peer]]:
        known = {"history": self.history, "snapshot": self.folder / "state"} | settings
        async with serving(clock=self.clock, listen=self._listen, **known) as (app, peer):
            self._listen = app.addr
            yield app, peer


@pytest.fixture
def node(clock: ManualClock, tmp_path: Path) -> Node:
    return Node(clock, tmp_path)


async def events(peer: Peer, broker: str = "a") -> ListBrokerEventsResponse:
    return await peer.admin.ListBrokerEvents(ListBrokerEventsRequest(broker_name=broker))


async def read_back(peer: Peer, broker: str = "a") -> ListBrokerEventsResponse:
    return await read_until(lambda: events(peer, broker), lambda found: found.earlier_runs == EARLIER_RUNS_READ)


def kinds(found: ListBrokerEventsResponse) -> list[str]:
    return [event.event for event in found.events if not event.event.startswith("NAMESRV_")]


async def penalty(peer: Peer) -> float:
    scores = (await peer.admin.ListFlapping(ListFlappingRequest())).scores
    return sum(score.penalty for score in scores)


LOST = ["REGISTERED", "SUSPECTED", "EXPIRED"]


async def test_a_restart_shortly_after_midnight_knows_the_outage_that_began_before_it(tmp_path: Path) -> None:
    node = Node(ManualClock(utc=datetime(2026, 1, 1, 23, 58, tzinfo=UTC)), tmp_path)
    async with node.running() as (_, peer):
        await peer.register("orders", who=A)
        await node.clock.advance(130.0)
        assert kinds(await events(peer)) == LOST
    assert {row["event_at"][:10] for row in rows_in(node.history)} == {"2026-01-01", "2026-01-02"}
    async with node.running() as (_, peer):
        found = await read_back(peer)
        assert kinds(found) == LOST
        assert [event.event for event in found.events][-2:] == ["NAMESRV_STOPPED", "NAMESRV_STARTED"]
        assert [bool(event.boot_id) for event in found.events] == [True] * 4 + [False]


async def test_a_clock_that_was_set_back_changes_neither_the_order_nor_the_penalty(node: Node) -> None:
    async with node.running() as (_, peer):
        await peer.register("orders", who=A)
        await node.clock.advance(130.0)
    node.clock.jump_wall_clock(-timedelta(hours=5))
    async with node.running() as (_, peer):
        await read_back(peer)
        await peer.register("orders", who=A)
        assert await penalty(peer) == pytest.approx(1_000, rel=0.01)
    node.clock.jump_wall_clock(-timedelta(hours=5))
    async with node.running() as (_, peer):
        assert kinds(await read_back(peer)) == [*LOST, "REGISTERED"]
        assert await penalty(peer) == pytest.approx(1_000, rel=0.01)
        (restored,) = (await peer.route.GetTopicRoute(GetTopicRouteRequest(topic="orders"))).route.broker_datas
        assert restored.broker_name == "a"


async def test_two_outages_over_three_runs_add_up(node: Node) -> None:
    for _ in range(2):
        async with node.running() as (_, peer):
            await read_back(peer)
            await peer.register("orders", who=A)
            await node.clock.advance(130.0)
    async with node.running() as (app, peer):
        assert kinds(await read_back(peer)) == LOST * 2
        assert 1_900 < await penalty(peer) < 2_000
        assert app.parts.memory.sizes()["earlier_runs"] == 2


async def test_a_renamed_broker_stays_renamed(node: Node) -> None:
    async with node.running() as (_, peer):
        await peer.register("orders", who=A)
        await node.clock.advance(80.0)
        await peer.register("orders", who=wire.identity("b"))
        assert kinds(await events(peer)) == ["REGISTERED", "SUSPECTED", "UNREGISTERED"]
    async with node.running() as (app, peer):
        assert kinds(await read_back(peer)) == ["REGISTERED", "SUSPECTED", "UNREGISTERED"]
        assert kinds(await read_back(peer, "b")) == ["REGISTERED"]
        assert [replica.identity.broker_name for _, replica in app.core.replicas()] == ["b"]
        assert len(app.core.departed) == 0


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> list[Question]:
    """The process that reads the files does not end."""
    asked: list[Question] = []

    def hangs(question: Question) -> subprocess.Popen[bytes]:
        asked.append(question)
        return subprocess.Popen(["sleep", "600"], stdout=subprocess.PIPE)  # any that hangs

    monkeypatch.setattr(startup_memory, "_started", hangs)
    return asked


async def test_ready_does_not_wait_for_the_history_and_answers_say_that_it_is_being_read(
    node: Node, hanging: list[Question]
) -> None:
    async with node.running() as (_, peer):
        generation = await peer.register("orders", who=A)
    rows = len(rows_in(node.history))
    for _ in range(2):  # a second restart during the reading
        async with node.running() as (app, peer):
            assert (await events(peer)).earlier_runs == EARLIER_RUNS_READING
            beaten = await peer.registration.Heartbeat(HeartbeatRequest(beat=wire.beat(generation, who=A)))
            assert beaten.answer.status
            await node.clock.advance(6.0)
            assert app.lifecycle.state == "READY"
            printed = await ctl("--namesrv", app.addr, "why", "a")
            assert "still reading the history: earlier events may be missing" in printed.out
            for listed in (("flapping",), ("brokers",), ("top", "--once"), ("info",), ("doctor",)):
                assert "still reading the history" in (await ctl("--namesrv", app.addr, *listed)).out, listed
            assert (await ask(app.monitoring_port, "/v1/brokers")).document["nodes"][0]["earlierRuns"] == "READING"
            for path in ("/", "/brokers/c1/a"):
                shown = (await ask(app.monitoring_port, path)).body.decode()
                assert "still reading its history: earlier events and penalties may be missing" in shown, path
            absent = await ctl("--namesrv", app.addr, "why", "other")
            assert (absent.code, "still reading the history" in absent.out) == (0, True)
            await eventually(lambda: len(rows_in(node.history)) > rows)
    assert len(hanging) == 2
    assert [row["event"] for row in rows_in(node.history)].count("CHECKPOINT") == 0, "they wait for the history"


async def test_after_a_second_restart_during_the_reading_everything_is_read(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node.running() as (_, peer):
        await peer.register("orders", who=A)
        await node.clock.advance(130.0)
    with monkeypatch.context() as patch:
        sleeps = ["sleep", "600"]
        patch.setattr(startup_memory, "_started", lambda _: subprocess.Popen(sleeps, stdout=subprocess.PIPE))
        async with node.running() as (_, peer):
            assert (await events(peer)).earlier_runs == EARLIER_RUNS_READING
    async with node.running() as (app, peer):
        found = await read_back(peer)
        assert kinds(found) == LOST
        assert [event.event for event in found.events].count("NAMESRV_STARTED") == 2
        assert "still reading" not in (await ctl("--namesrv", app.addr, "brokers")).out
        assert "still reading" not in (await ask(app.monitoring_port, "/brokers/c1/a")).body.decode()


async def test_without_a_history_why_says_so(node: Node) -> None:
    async with node.running(history=None) as (app, peer):
        await peer.register("orders", who=A)
        assert (await events(peer)).earlier_runs == EARLIER_RUNS_OFF
        printed = await ctl("--namesrv", app.addr, "why", "a")
        assert "its history is off or not read at the start: events since this start only" in printed.out
        document = (await ctl("--namesrv", app.addr, "--output", "json", "why", "a")).document
        assert document["nodes"][0]["earlierRuns"] == "OFF"


async def test_on_a_full_disk_a_start_reads_its_history(node: Node, tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "-o", "size=1048576") as disk:
        node.history = disk
        async with node.running() as (_, peer):
            await peer.register("orders", who=A)
            await node.clock.advance(130.0)
        ballast = disk / "ballast"
        with ballast.open("wb", buffering=0) as full:
            try:
                while full.write(b"x" * 4_096):
                    pass
            except OSError:
                pass
        async with node.running() as (app, peer):
            assert kinds(await read_back(peer)) == LOST
            assert app.core.departed.all()
            ballast.unlink()


async def test_the_state_of_the_reading_is_in_info_and_over_http(node: Node) -> None:
    async with node.running() as (_, peer):
        await peer.register("orders", who=A)
    (damaged,) = node.history.glob("raw/dt=*/*.jsonl.gz")
    damaged.with_name(damaged.name.replace("-1.jsonl", "-2.jsonl")).write_bytes(b"no gzip")
    (node.history / "raw" / "dt=2026-01-01" / "other-b9-1.jsonl").write_bytes(b"")
    async with node.running() as (app, peer):
        await read_back(peer)
        info = json.loads((await ctl("--namesrv", app.addr, "--output", "json", "info")).out)
        sizes = info["nodes"][0]["sizes"]
        assert (sizes["earlier_files"], sizes["earlier_files_damaged"], sizes["earlier_files_of_other_nodes"]) == (
            1,
            1,
            1,
        )
